"""`cache_dir="warm-pool"`: what a job finds of the jobs before it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faulty_s3 import Store, environment_of
from sagemaker_channels import contract, open_channel
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources import listing
from sagemaker_channels.sources.object_cache import open_cache

SIZE = 10_000  # bytes of an object
WARM: dict[str, Any] = {"cache_dir": "warm-pool"}


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


def read(root: Path, prefix: str) -> list[int]:
    environment = environment_of(root, f"s3://bucket/{prefix}/")
    with open_channel("train", environment=environment, **WARM) as samples:
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
    return [file for file in pool.rglob("*") if file.is_file()]


def test_disk_too_small_for_a_job_is_no_error(
    store: Store, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_disk(pool, monkeypatch, 4)
    fill(store, "data", 12)
    for _ in range(2):
        assert read(tmp_path / "job", "data") == list(range(12))
    assert 1 <= len(kept(pool)) <= 5  # the last one began when there was room
    assert len(fetched(store)) < 24


def test_files_of_a_mount_are_read_but_not_kept(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    channel = Channel("train", "FastFile", None, "FullyReplicated", "None", tmp_path / "data")
    assert open_cache("warm-pool", channel) is None
    assert "the files of a mount have no ETag" in capsys.readouterr().err
