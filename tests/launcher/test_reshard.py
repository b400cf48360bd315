"""`launch reshard`: the job that its options make, and the results of a run here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from launcher.cli import cli

PLACES = ["s3://mine/in/", "s3://mine/out"]


def request_of(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["reshard", *PLACES, *options, "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    request: dict[str, Any] = json.loads(result.stdout)
    return request


@pytest.mark.parametrize("content_type", ["tar", "application/x-tar"])
def test_sagemaker_divides_the_objects_among_hosts(content_type: str) -> None:
    request = request_of(
        "--hosts", "3", "--content-type", content_type, "--shard-size", "1.5MB", "--shuffle-seed", "7", "--strict"
    )
    data = request["InputDataConfig"][0]
    assert (data["InputMode"], data["ContentType"]) == ("FastFile", "application/x-tar")
    assert data["DataSource"]["S3DataSource"]["S3DataDistributionType"] == "ShardedByS3Key"
    assert request["ResourceConfig"]["InstanceCount"] == 3
    expected = {"source": "s3://mine/in/", "output": "s3://mine/out/", "shard-bytes": "1500000", "seed": "7"}
    assert expected.items() <= request["HyperParameters"].items()


@pytest.mark.parametrize("options", [(), ("--sidecars", "json", "--hosts", "2")])
def test_one_host_or_one_that_joins_sidecars_reads_s3_itself(options: tuple[str, ...]) -> None:
    request = request_of(*options)
    assert [channel["ChannelName"] for channel in request["InputDataConfig"]] == ["launcher_code"]
    assert any('"s3_uri": "s3://mine/in/"' in value.replace('":"', '": "') for value in request["Environment"].values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sidecars", "json", "--format", "recordio"], "--sidecars joins whole objects"),
        (["--sidecars", "json", "--content-type", "tar"], "--sidecars joins whole objects"),
        (["--content-type", "tarr"], "--content-type: format 'tarr' is neither a content type nor one of tar, zip"),
        (["--shard-size", "large"], "expected a size such as 256MB, got 'large'"),
    ],
)
def test_impossible_options_are_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["reshard", *PLACES, *options, "--dry-run"])
    assert result.exit_code == 2 and message in result.stderr


def test_local_run_states_why_it_failed(tmp_path: Path) -> None:
    folder = tmp_path / "data/s3/mine/in"
    folder.mkdir(parents=True)
    for name in ("1.jpg", "1.json", "2.jpg"):
        (folder / name).write_text(name)
    result = run_local(tmp_path, "--sidecars", "json", "--json")
    assert result.returncode == 4, result.stderr
    reason = json.loads(result.stdout)["FailureReason"].partition("\n")[0]
    assert reason.endswith(
        "exit code 1: reshard: channel 'data': in/2: has jpg but not json; add it, or choose other sidecars"
    )


def test_printed_command_lets_a_further_local_run_continue(tmp_path: Path) -> None:
    """Each local run writes to a folder of its own, so the same command started again from the first object."""
    folder = tmp_path / "data/s3/mine/in"
    folder.mkdir(parents=True)
    (folder / "1.jpg").write_text("one")
    first = run_local(tmp_path)
    command = re.search(r"To read the shards, or to continue: (mkdir .*)", first.stderr)
    assert command, first.stderr
    subprocess.run(["sh", "-c", command[1]], cwd=tmp_path, check=True)
    (folder / "2.jpg").write_text("two")
    again = run_local(tmp_path)
    assert "s3://mine/out/: 1 shards of an earlier run are complete" in again.stdout, again.stderr
    assert "2 shards with 2 samples" in again.stdout


def run_local(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", "reshard", *PLACES, *options, "--local", "--data", "data"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
