"""len() of datasets and loaders: exact if an index has it, else a TypeError with the reason."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet
from torch.utils.data import DataLoader

from format_channels import LINES, configured
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sources import mounted
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.worker_loader import WorkerLoader

FORMATS = {"objects": None, "zip": "application/zip", "parquet": "application/x-parquet", "lines": "text/plain"}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Channels of five objects; object n of zip and Parquet has n samples, those of zip two members each."""
    config = {"pipe": {**LINES, "TrainingInputMode": "Pipe"}}
    for name, content_type in FORMATS.items():
        config[name] = {"TrainingInputMode": "File"} | ({"ContentType": content_type} if content_type else {})
    environment = configured(tmp_path, **config)
    for name in FORMATS:
        for number in range(5):
            place = environment.data_dir / name / str(number)
            if name == "zip":
                with zipfile.ZipFile(place, "w") as archive:
                    for member in [f"{each}.{ending}" for ending in ("txt", "cls") for each in range(number)]:
                        archive.writestr(member, "x")
            elif name == "parquet":
                parquet.write_table(arrow.table({"number": arrow.array(range(number))}), place)
            else:
                place.write_text("a\nb\n")
    return environment


@pytest.mark.parametrize("reading", [{}, {"seed": 3}, {"seed": 3, "shards": 4}], ids=["", "shuffled", "shards"])
@pytest.mark.parametrize("name", ["objects", "zip", "parquet"])
def test_length_is_the_number_of_samples_and_batches(
    environment: Environment, name: str, reading: dict[str, Any]
) -> None:
    dataset = ChannelDataset(name, environment=environment, **reading)
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        assert len(dataset) == sum(1 for _ in dataset) == (5 if name == "objects" else 10)
        for drop_last, readers in product((False, True), (1, 2)):
            loader = ThreadLoader(dataset, 3, num_workers=2, readers=readers, collate_fn=list, drop_last=drop_last)
            assert len(loader) == sum(1 for _ in loader)
        if "shards" not in reading:
            shards = [
                open_channel(name, epoch, environment=environment, shard=Shard(i, 3), **reading) for i in range(3)
            ]
            assert [shard.counted() for shard in shards] == [sum(1 for _ in shard) for shard in shards]
    assert len(DataLoader(dataset, 3)) == -(-len(dataset) // 3)


@pytest.mark.parametrize(("name", "reason"), [("lines", "lines has no index"), ("pipe", "a Pipe is one stream")])
def test_unknown_length_is_a_type_error_with_the_reason(environment: Environment, name: str, reason: str) -> None:
    dataset = ChannelDataset(name, environment=environment)
    for loader in (dataset, ThreadLoader(dataset), DataLoader(dataset)):
        with pytest.raises(TypeError, match=f"^channel '{name}': the number of samples is unknown .*: {reason}$"):
            len(loader)
    assert dataset
    assert ThreadLoader(dataset)


@pytest.mark.parametrize("reading", [{}, {"seed": 3}, {"seed": 3, "shards": 4}], ids=["", "shuffled", "shards"])
def test_length_and_list_cost_no_second_listing(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, reading: dict[str, Any]
) -> None:
    """`list` asks for the length after the iteration has begun, and before it reads."""
    walks: list[bytes] = []
    walk = mounted.walk

    def counted(root: bytes) -> Iterator[bytes]:
        walks.append(root)
        return walk(root)

    monkeypatch.setattr(mounted, "walk", counted)
    dataset = ChannelDataset("objects", environment=environment, **reading)
    mixed = MixedDataset([dataset])
    threads = [ThreadLoader(dataset, num_workers=2, readers=readers) for readers in (1, 2)]
    loaders: list[Any] = [dataset, mixed, DataLoader(dataset, None), *threads]
    for each in loaders:
        walks.clear()
        assert len(list(each)) == 5
        assert len(walks) == 1
        assert len(each) == sum(1 for _ in each)
        assert len(walks) == 2
    dataset.set_epoch(0)
    both = [*zip(dataset, dataset, strict=True)]
    dataset.set_epoch(0)
    assert both == [(sample, sample) for sample in dataset]


@pytest.mark.parametrize(("drop_last", "batches"), [(False, [2, 2, 1]), (True, [2, 2])])
def test_length_of_a_data_loader_counts_the_incomplete_batch_of_each_worker(
    environment: Environment, drop_last: bool, batches: list[int]
) -> None:
    """Lightning and HF's Trainer drop the batches beyond the length."""
    dataset = ChannelDataset("objects", environment=environment)
    loader = DataLoader(dataset, 2, num_workers=3, collate_fn=len, drop_last=drop_last)
    assert len(loader) == len(batches)
    assert list(loader) == batches
    assert len(dataset) == 5


def test_length_of_a_stateful_loader_of_workers_is_exact(environment: Environment) -> None:
    loader = WorkerLoader(ChannelDataset("zip", environment=environment), 4, num_workers=3, collate_fn=len)
    assert len(loader) == sum(1 for _ in loader)


def test_length_of_a_mixture_is_that_of_its_channels(environment: Environment) -> None:
    parts = [ChannelDataset(name, environment=environment) for name in ("objects", "zip")]
    assert len(MixedDataset(parts)) == 15


def test_list_with_a_failing_listing_lists_once(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """`list` asks for the length first, and a store that is down takes long to fail."""
    walks: list[bytes] = []

    def failing(root: bytes) -> Iterator[bytes]:
        walks.append(root)
        yield b"0"
        raise OSError("the mount is gone")

    monkeypatch.setattr(mounted, "walk", failing)
    dataset = ChannelDataset("objects", environment=environment)
    for number, loader in enumerate((dataset, ThreadLoader(dataset), DataLoader(dataset)), 1):
        with pytest.raises(ChannelError, match=r"^channel 'objects' cannot be read: the mount is gone"):
            list(loader)
        assert len(walks) == number


def test_length_is_unknown_if_damage_is_skipped(environment: Environment) -> None:
    (environment.channels["zip"].path / "1").write_bytes(b"no archive")
    with pytest.raises(CorruptError, match="channel 'zip': object '1', byte 10: expected a zip's end record"):
        len(ChannelDataset("zip", environment=environment))
    dataset = ChannelDataset("zip", environment=environment, skip_damaged=1)
    with pytest.raises(TypeError, match=r"channel 'zip': .* is unknown until they are read: skip_damaged changes it"):
        len(dataset)
    assert len([*dataset]) == 9
