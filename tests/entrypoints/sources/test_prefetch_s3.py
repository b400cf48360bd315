"""The connector in parallel, against our S3 with latency and faults: workers, forks, retries, one listing for all."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from faulty_s3 import RESET, Store, environment_of
from object_channels import streams_of
from patience import PATIENCE, wait_for
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sources import s3, s3_client
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.map import ChannelMapDataset

COUNT = 1010  # two pages of a listing


@pytest.fixture
def numbers(store: Store, tmp_path: Path) -> Environment:
    """A channel of small objects, each its own number."""
    for number in range(COUNT):
        (store.folder / f"{number:05d}").write_bytes(b"%d" % number)
    return environment_of(tmp_path, "s3://bucket/")


def number_of(sample: dict[str, Any]) -> int:
    return int(sample["data"])


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_each_object_once_with_one_listing(store: Store, numbers: Environment, start: str) -> None:
    sys.path.append(str(Path(__file__).parent))  # where spawn finds this module again
    try:
        dataset = ChannelDataset("train", transform=number_of, environment=numbers)
        loader: DataLoader[Any] = DataLoader(
            dataset, 100, num_workers=2 if start == "fork" else 1, multiprocessing_context=start, collate_fn=list
        )
        for epoch in range(2 if start == "fork" else 1):
            dataset.set_epoch(epoch)
            assert sorted(number for batch in loader for number in batch) == list(range(COUNT))
    finally:
        sys.path.pop()
    assert store.listings() == 2


def test_batch_is_in_the_order_of_its_indices(store: Store, numbers: Environment) -> None:
    dataset = ChannelMapDataset("train", number_of, environment=numbers)
    indices = [5, COUNT - 1, 0, 5, -1, 1000]
    assert dataset.__getitems__(indices) == [5, COUNT - 1, 0, 5, COUNT - 1, 1000]
    assert len(dataset) == len(dataset.keys) == COUNT
    with pytest.raises(IndexError):
        dataset.__getitems__([COUNT])


def test_workers_read_whole_batches(store: Store, numbers: Environment) -> None:
    dataset = ChannelMapDataset("train", number_of, environment=numbers)
    loader: DataLoader[Any] = DataLoader(dataset, 64, num_workers=2, collate_fn=list)
    assert [number for batch in loader for number in batch] == list(range(COUNT))
    assert store.listings() == 2


def read_number(key: str, answers: Any) -> None:
    answers.put(int(s3_client.fetch("bucket", key, None, None)))


def test_forks_while_objects_are_fetched_are_safe(store: Store, numbers: Environment) -> None:
    # The connector's client cannot be forked while requests are under way: the child hangs.
    context = multiprocessing.get_context("fork")
    found = []
    for key, stream in streams_of(numbers.channels["train"]):
        found.append(int(stream.read()))
        stream.close()
        if len(found) in (1, 500):
            answers: Any = context.SimpleQueue()
            child = context.Process(target=read_number, args=(key, answers))
            child.start()
            child.join(PATIENCE)
            assert child.exitcode == 0
            assert answers.get() == found[-1]
    assert found == list(range(COUNT))


@pytest.mark.parametrize("client_used", [True, False])
def test_only_a_fork_after_a_request_collects_garbage(store: Store, client_used: bool) -> None:
    """A collection takes 0.1 s and more with torch's objects: each worker of a loader was forked after one of its own."""
    (store.folder / "a").write_bytes(b"1")
    assert s3_client.fetch("bucket", "a", None, None) == b"1"
    collections = []
    for _ in range(2):
        before = gc.get_stats()[-1]["collections"]
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        collections.append(gc.get_stats()[-1]["collections"] - before)
        if client_used:
            assert s3_client.fetch("bucket", "a", None, None) == b"1"
    assert collections == [1, client_used]


def test_refused_object_raises_in_its_place(store: Store, numbers: Environment) -> None:
    store.faults["/bucket/00007"] = [403] * 2
    found = []
    with pytest.raises(ChannelError, match="s3://bucket/00007 cannot be read"):
        for _, stream in streams_of(numbers.channels["train"]):
            found.append(int(stream.read()))
            stream.close()
    assert found == list(range(7))


def test_transient_errors_are_retried(store: Store, numbers: Environment) -> None:
    store.faults["/bucket/00007"] = [503, 500, 502, RESET, 503]
    found = [int(stream.read()) for _, stream in streams_of(numbers.channels["train"], Shard(0, 100))]
    assert found == list(range(0, COUNT, 100))
    found = [int(stream.read()) for _, stream in streams_of(numbers.channels["train"], Shard(7, 1000))]
    assert found == [7, 1007]


def test_broken_request_resumes_where_it_broke(store: Store) -> None:
    data = os.urandom(20 << 20)
    (store.folder / "big").write_bytes(data)
    store.faults[f"bytes={8 << 20}-{(16 << 20) - 1}"] = [502]  # which the client itself does not try again
    store.fault_delay = 3.0  # the first part arrives before: what has arrived is not asked for again
    assert s3_client.fetch("bucket", "big", 0, 20 << 20) == data
    asked = [request.headers.get("range") for request in store.requests]
    assert asked.count(f"bytes=0-{(8 << 20) - 1}") == 1
    assert asked.count(f"bytes={8 << 20}-{(16 << 20) - 1}") == 2


def test_big_and_small_objects_are_read_together(store: Store, tmp_path: Path) -> None:
    sizes = [0, 1, s3.RANGE_BYTES, s3.RANGE_BYTES + 1, 0, 3 * s3.RANGE_BYTES + 5, 7]
    wanted = []
    for number, size in enumerate(sizes):
        wanted.append(os.urandom(size))
        (store.folder / str(number)).write_bytes(wanted[-1])
    channel = environment_of(tmp_path, "s3://bucket/").channels["train"]
    assert [stream.read() for _, stream in streams_of(channel)] == wanted
    ranges = [(request.path, request.headers["range"]) for request in store.requests if "range" in request.headers]
    assert len(ranges) == len(set(ranges))  # nothing is fetched twice


def test_resumed_stream_fetches_from_its_position(store: Store, tmp_path: Path) -> None:
    data = os.urandom(3 * s3.RANGE_BYTES)
    (store.folder / "big").write_bytes(data)
    channel = environment_of(tmp_path, "s3://bucket/").channels["train"]
    [(_, stream)] = streams_of(channel)
    stream.seek(2 * s3.RANGE_BYTES + 10)  # type: ignore[attr-defined]
    assert stream.read() == data[2 * s3.RANGE_BYTES + 10 :]
    [asked] = [request for request in store.requests if request.path == "/bucket/big"]
    assert asked.headers["range"] == f"bytes={2 * s3.RANGE_BYTES + 10}-{3 * s3.RANGE_BYTES - 1}"


def test_leaving_early_ends_the_threads(store: Store, numbers: Environment) -> None:
    streams = streams_of(numbers.channels["train"])
    for _, stream in streams:
        assert stream.read() == b"0"
        stream.close()
        break
    streams.close()  # type: ignore[attr-defined]
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name == "prefetch"])
