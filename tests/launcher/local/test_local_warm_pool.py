"""What local runs of a job with a warm pool keep for the next run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from local_jobs import launch, write_job

SCRIPT = """
import os
from pathlib import Path
from sagemaker_channels import open_channel
from sagemaker_channels.sources import object_cache, s3_client

object_cache.KEPT_FREE = 0  # however full this disk is
fetch, fetched = s3_client.fetch, []
s3_client.fetch = lambda *arguments: fetched.append(arguments) or fetch(*arguments)
samples = list(open_channel("train", cache_dir="warm-pool"))
note = Path(os.environ.get("SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY", "/no-warm-pool"), "note")
print("samples", len(samples), "fetched", len(fetched), "note", note.exists())
if note.parent.name == "warmpoolcache":
    note.touch()
"""
OVERLAY = (
    "channels: {train: {source: S3Connector, s3_uri: s3://bucket/train/}}\n"
    "resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50%s}\n"
)
WARM = ", keep_alive_period_in_seconds: 600"


@pytest.mark.parametrize("options", [(), ("--no-namespaces",)], ids=" ".join)
def test_next_run_finds_what_the_last_one_kept(here: Path, options: tuple[str, ...]) -> None:
    write_job(here, SCRIPT, OVERLAY % WARM)
    assert "samples 6 fetched 6 note False" in launch(here, *options)
    shutil.rmtree(here / ".launch/job")
    (here / "data/s3/bucket/train/2.txt").write_text("changed")
    assert "samples 6 fetched 1 note True" in launch(here, *options)


def test_run_without_a_warm_pool_keeps_nothing(here: Path) -> None:
    write_job(here, SCRIPT, OVERLAY % "")
    shown = launch(here)
    assert "samples 6 fetched 6 note False" in shown
    assert "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY is not set; set resource_config.keep_alive_period" in shown
    assert not (here / ".launch/.warm-pool").exists()
