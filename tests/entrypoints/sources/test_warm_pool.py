"""`cache_dir="warm-pool"`: what a job finds of the jobs before it, and what gives way if the disk is full."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delivered_channels import config
from faulty_s3 import Store, environment_of
from patience import PATIENCE
from sagemaker_channels import contract, open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.reading import Reading
from sagemaker_channels.sources import listing
from sagemaker_channels.sources.object_cache import open_cache

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")

SIZE = 10_000  # bytes of an object
WARM = {"cache_dir": "warm-pool"}


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pool"
    monkeypatch.setenv(contract.WARM_POOL_VARIABLE, str(folder))
    return folder


def fill(store: Store, prefix: str, count: int) -> None:
    (store.folder / prefix).mkdir()
    for number in range(count):
        (store.folder / prefix / str(number)).write_bytes(bytes([number]) * SIZE)


@contextmanager
def next_job() -> Iterator[None]:
    """A job that lists for itself, with objects of the jobs before it that are some time old."""
    job = listing.job()
    listing.join_job(f"{job}-{time.monotonic_ns()}")
    try:
        yield
    finally:
        listing.join_job(job)


def read(root: Path, prefix: str, shard: Shard | None = None, reading: Reading = WARM) -> list[int]:
    environment = environment_of(root, f"s3://bucket/{prefix}/")
    with open_channel("train", environment=environment, **reading, shard=shard) as samples:
        return sorted(sample["data"][0] for sample in samples if len(sample["data"]) == SIZE)


def fetched(store: Store) -> list[str]:
    found = [request.path for request in store.requests if request.method == "GET" and "list-type" not in request.query]
    store.requests.clear()
    return found


def test_next_job_fetches_only_changed_objects(store: Store, pool: Path, tmp_path: Path) -> None:
    fill(store, "data", 12)
    assert read(tmp_path / "first", "data") == list(range(12))
    assert len(fetched(store)) == 12
    with next_job():
        assert read(tmp_path / "second", "data") == list(range(12))
        assert fetched(store) == []
    (store.folder / "data/3").write_bytes(bytes([77]) * SIZE)
    with next_job():
        assert read(tmp_path / "third", "data") == [0, 1, 2, *range(4, 12), 77]
        assert fetched(store) == ["/bucket/data/3"]


def test_job_without_a_warm_pool_reads_and_warns(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, "data", 3)
    for _ in range(2):
        assert read(tmp_path, "data") == [0, 1, 2]
        assert len(fetched(store)) == 3
    assert (
        "objects are not kept in the warm-pool: SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY is"
        in capsys.readouterr().err
    )


def test_unwritable_warm_pool_is_no_error(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.WARM_POOL_VARIABLE, "/proc/pool")
    fill(store, "data", 3)
    assert read(tmp_path, "data") == [0, 1, 2]


def limit_disk(pool: Path, monkeypatch: pytest.MonkeyPatch, objects: int) -> None:
    """Make the disk of the warm pool as large as this number of objects, and a tenth more."""

    def usage(_: Any) -> SimpleNamespace:
        total = int(SIZE * objects * 1.1)
        return SimpleNamespace(total=total, free=total - sum(file.stat().st_size for file in kept(pool)))

    monkeypatch.setattr(shutil, "disk_usage", usage)


def kept(pool: Path) -> list[Path]:
    files = []
    for file in pool.rglob("*"):
        try:
            if file.is_file():
                file.stat()
                files.append(file)
        except FileNotFoundError:
            continue
    return files


def age(pool: Path) -> None:
    """Make what is there an hour older, as if an earlier job had left it, each object a second older than the one before."""
    for number, file in enumerate(sorted(kept(pool), key=lambda file: file.stat().st_mtime_ns, reverse=True)):
        then = file.stat().st_mtime - 3600 - number
        os.utime(file, (then, then))


def test_full_disk_keeps_what_this_job_uses_and_removes_the_oldest(
    store: Store, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_disk(pool, monkeypatch, 20)
    for prefix in ("old", "used", "new"):
        fill(store, prefix, 8)
    config(tmp_path / "job", 0, 1, {})  # when the job began
    read(tmp_path, "old")
    age(pool)
    read(tmp_path, "used")
    age(pool)
    fetched(store)
    with next_job():
        assert read(tmp_path / "job", "used") == list(range(8))
        assert fetched(store) == []
        assert read(tmp_path / "job", "new") == list(range(8))
        fetched(store)
        assert read(tmp_path / "job", "used") == read(tmp_path / "job", "new") == list(range(8))
        assert fetched(store) == []  # Both are kept, so some of the old ones gave way.
    assert 16 <= len(kept(pool)) <= 20


def test_disk_too_small_for_a_job_is_no_error(
    store: Store, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_disk(pool, monkeypatch, 4)
    fill(store, "data", 12)
    config(tmp_path / "job", 0, 1, {})
    for _ in range(2):
        assert read(tmp_path / "job", "data") == list(range(12))
    assert 1 <= len(kept(pool)) <= 5  # the last one began when there was room
    assert len(fetched(store)) < 24


def read_share(root: Path, prefixes: list[str], number: int, answers: Any) -> None:
    answers.put([read(root, prefix, Shard(number, 4)) for prefix in prefixes])


def test_processes_that_make_room_for_each_other_read_everything(
    store: Store, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_disk(pool, monkeypatch, 20)
    prefixes = ["a", "b", "c", "a"]
    for prefix in "abc":
        fill(store, prefix, 16)
    read(tmp_path, "a")
    age(pool)
    config(tmp_path / "job", 0, 1, {})
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    readers = [
        context.Process(target=read_share, args=(tmp_path / "job", prefixes, number, answers)) for number in range(4)
    ]
    for reader in readers:
        reader.start()
    found = [answers.get() for _ in readers]
    for reader in readers:
        reader.join(PATIENCE)
    for place in range(4):
        assert sorted(number for shares in found for number in shares[place]) == list(range(16))
    assert len(kept(pool)) <= 20 + len(readers)  # each may be about to keep one


def test_files_of_a_mount_are_read_but_not_kept(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sagemaker_channels.job.environment import Channel, load_environment

    channel = Channel("train", "FastFile", None, "FullyReplicated", "None", tmp_path / "data")
    assert open_cache("warm-pool", channel, load_environment(tmp_path, {})) is None
    assert "the files of a mount have no ETag" in capsys.readouterr().err
