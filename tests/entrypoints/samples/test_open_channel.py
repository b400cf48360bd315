"""open_channel yields the same samples, each once, in every input mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from delivered_channels import (
    CHANNELS,
    EXPECTED,
    delivered,
    tally,
)
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import Sample
from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.torch_data.dataset import ChannelDataset
from served_bucket import served_bucket


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The four channels as s3://bucket/<channel>/."""
    for name, (_, objects, _) in CHANNELS.items():
        for key, data in objects.items():
            file = tmp_path / "s3" / "bucket" / name / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    with served_bucket(tmp_path, monkeypatch):
        yield


def read(environment: Environment, name: str, workers: int) -> Iterable[Sample]:
    if workers == 0:
        return open_channel(name, environment=environment)
    loader: DataLoader[Sample] = DataLoader(
        ChannelDataset(name, environment=environment), batch_size=4, num_workers=workers, collate_fn=list
    )
    return chain.from_iterable(loader)


# On one host, all distributions are the same; workers divide what their host reads, whatever that is.
WAYS = [
    (mode, hosts, distribution, workers)
    for mode in ("File", "FastFile", "Pipe", "S3Connector")
    for hosts, distribution, workers in (
        (1, "FullyReplicated", 0),
        (2, "FullyReplicated", 0),
        (2, "ShardedByS3Key", 0),
        (2, "FullyReplicated", 2),
    )
    if not (mode == "Pipe" and workers) and not (mode == "S3Connector" and distribution == "ShardedByS3Key")
]


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(("mode", "hosts", "distribution", "workers"), WAYS)
def test_every_mode_and_number_of_hosts_yields_the_same_samples(
    tmp_path: Path, mode: str, hosts: int, distribution: str, workers: int
) -> None:
    with delivered(tmp_path, mode, hosts, distribution) as environments:
        for name, expected in EXPECTED.items():
            parts = [tally(read(environment, name, workers)) for environment in environments]
            assert sum(parts, Tally()) == tally(expected), name
            if hosts == 2:  # both take part
                assert all(part.count for part in parts)


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_ranks_of_torchrun_together_yield_every_sample(
    tmp_path: Path, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delivered(tmp_path, "File", 2, distribution) as environments:
        for name, expected in EXPECTED.items():
            total = Tally()
            for rank in range(4):
                for variable, value in (
                    ("RANK", rank),
                    ("WORLD_SIZE", 4),
                    ("LOCAL_RANK", rank % 2),
                    ("LOCAL_WORLD_SIZE", 2),
                ):
                    monkeypatch.setenv(variable, str(value))
                total += tally(open_channel(name, environment=environments[rank // 2]))
            assert total == tally(expected)


def test_key_is_the_relative_path_or_the_member_name(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        assert next(open_channel("whole", environment=environment))["__key__"] == "0/0.bin"
        assert next(open_channel("lines", environment=environment))["__key__"] == "0.csv"
        assert next(open_channel("tar", environment=environment))["__key__"] == "000"


def test_open_channel_reads_the_process_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated"):
        monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "host0"))
        assert tally(open_channel("tar")) == tally(EXPECTED["tar"])


def test_format_argument_overrides_the_content_type(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        for form in ("objects", "application/octet-stream"):
            assert tally(open_channel("tar", format=form, environment=environment)).count == 7


def test_shard_argument_selects_the_samples(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        assert tally(open_channel("whole", environment=environment, shard=Shard(1, 10))).count == 3
