"""What `cache_dir` keeps, what it does not, and that reading continues if nothing can be kept."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from faulty_s3 import Store, channel_of, environment_of
from patience import PATIENCE
from sagemaker_channels import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import tar, zip_archive
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import start_time
from sagemaker_channels.sources import listing, s3
from sagemaker_channels.sources.object_cache import ObjectCache

OBJECTS, SAMPLES = 12, 5


def write(store: Store, form: str) -> None:
    """A dozen objects of five samples, below a prefix of the format's name."""
    for number in range(OBJECTS):
        file = store.folder / form / f"{number:02d}"
        file.parent.mkdir(exist_ok=True)
        texts = [f"{number}-{sample}" for sample in range(SAMPLES)]
        samples = [{"__key__": text, "txt": text.encode()} for text in texts]
        if form == "parquet":
            parquet.write_table(pyarrow.table({"txt": [text.encode() for text in texts]}), file)
            continue
        with file.open("wb") as stream:
            (tar if form == "tar" else zip_archive).write(stream, samples)


EVERY = sorted(f"{number}-{sample}" for number in range(OBJECTS) for sample in range(SAMPLES))


def read(root: Path, form: str, reading: dict[str, Any], epoch: int = 0, shard: Shard | None = None) -> list[str]:
    environment = environment_of(root, f"s3://bucket/{form}/")
    with closing(open_channel("train", epoch, format=form, environment=environment, **reading, shard=shard)) as samples:
        return [sample["txt"].decode() for sample in samples]


def fetched(store: Store) -> list[str]:
    """The objects that were read; HEAD only asks for an ETag."""
    return [request.path for request in store.requests if request.method == "GET" and "list-type" not in request.query]


@pytest.mark.parametrize("form", ["tar", "zip", "parquet"])
def test_objects_of_every_format_are_cached(store: Store, tmp_path: Path, form: str) -> None:
    write(store, form)
    reading = {"cache_dir": tmp_path / "cache"}
    first = read(tmp_path, form, reading)
    assert sorted(first) == EVERY
    assert fetched(store)
    store.requests.clear()
    assert read(tmp_path, form, reading, 1) == first
    assert sorted(read(tmp_path, form, {"seed": 1, "cache_dir": tmp_path / "cache"}, 1)) == EVERY
    assert fetched(store) == []
    assert not list((tmp_path / "cache").rglob("parts/*"))


def test_changed_object_is_fetched_again(store: Store, tmp_path: Path) -> None:
    write(store, "tar")
    reading = {"cache_dir": tmp_path / "cache"}
    assert sorted(read(tmp_path, "tar", reading)) == EVERY
    with (store.folder / "tar/03").open("wb") as stream:
        tar.write(stream, [{"__key__": f"3-{sample}", "txt": b"new"} for sample in range(SAMPLES)])
    store.requests.clear()
    job = listing.job()
    try:
        listing.join_job(f"{job}-next")  # which lists again
        assert read(tmp_path, "tar", reading).count("new") == SAMPLES
    finally:
        listing.join_job(job)
    assert fetched(store) == ["/bucket/tar/03"]


@pytest.mark.parametrize("left", [0, 100])
def test_truncated_cached_object_is_fetched_and_cached_again(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    (store.folder / "objects").mkdir()
    for name in "abc":
        (store.folder / "objects" / name).write_bytes(name.encode() * 1000)
    environment = environment_of(tmp_path, "s3://bucket/objects/")

    def read_all() -> list[bytes]:
        with open_channel("train", environment=environment, cache_dir=tmp_path / "cache") as samples:
            return [sample["data"] for sample in samples]

    whole = read_all()
    [kept] = [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.read_bytes()[:1] == b"b"]
    os.truncate(kept, left)
    store.requests.clear()
    assert read_all() == whole == read_all()
    assert fetched(store) == ["/bucket/objects/b"]
    assert f"{left} bytes, not the 1000 of object 'objects/b'" in caplog.text


def read_shares(root: Path, number: int, answers: Any) -> None:
    reading = {"seed": 3, "cache_dir": root / "cache"}
    answers.put([read(root, "zip", reading, epoch, Shard(number, 8)) for epoch in range(3)])


def test_eight_processes_share_a_cache(store: Store, tmp_path: Path) -> None:
    write(store, "zip")
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    readers = [context.Process(target=read_shares, args=(tmp_path, number, answers)) for number in range(8)]
    for reader in readers:
        reader.start()
    found = [answers.get() for _ in readers]
    for reader in readers:
        reader.join(PATIENCE)
    for epoch in range(3):
        assert sorted(text for epochs in found for text in epochs[epoch]) == EVERY
    assert sum(file.is_file() for file in (tmp_path / "cache").rglob("*")) == OBJECTS


def test_unusable_cache_dir_is_refused_immediately(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "tar")
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "file", tmp_path / "file/below", Path("/proc/cache")):
        with pytest.raises(
            ChannelError, match=f"'train': cannot write to cache_dir {place}: .*; name a writable folder"
        ):
            read(tmp_path, "tar", {"cache_dir": place})
    mounted = Channel("train", "FastFile", None, "FullyReplicated", "None", tmp_path / "data")
    with pytest.raises(ChannelError, match="is inside the channel"):
        ObjectCache(tmp_path / "data" / "cache", mounted)


def test_cache_dir_expands_home_and_relative_paths(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "tar")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, place in (("~/cache", tmp_path / "home/cache"), ("here/cache", tmp_path / "here/cache")):
        assert sorted(read(tmp_path, "tar", {"cache_dir": name})) == EVERY
        assert sum(file.is_file() for file in place.rglob("*")) == OBJECTS


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_failing_write_ends_caching_but_not_reading(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    write(store, form)
    read(tmp_path, form, {})  # so that it is listed
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # no file may be longer: the kernel refuses the rest
    try:
        found = sorted(read(tmp_path, form, {"cache_dir": tmp_path / "cache"}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found == EVERY
    assert len([record for record in caplog.records if "no more objects are kept" in record.message]) == 1
    assert [file for file in (tmp_path / "cache").rglob("*") if file.is_file()] == []


def test_removed_cache_dir_ends_caching_but_not_reading(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(store, "zip")
    environment = environment_of(tmp_path, "s3://bucket/zip/")
    samples = open_channel("train", 0, format="zip", environment=environment, cache_dir=tmp_path / "cache")
    found = [next(samples)["txt"].decode()]
    shutil.rmtree(tmp_path / "cache")
    found += [sample["txt"].decode() for sample in samples]
    assert sorted(found) == EVERY
    assert [record.levelno for record in caplog.records if "no more objects" in record.message] == [logging.WARNING]


def read_half_and_die(root: Path) -> None:
    def copy(stream: Any, part: Any, size: int) -> None:
        part.write(stream.read(1000))
        os.kill(os.getpid(), signal.SIGKILL)

    shutil.copyfileobj = copy  # type: ignore[assignment]
    channel = channel_of(root, "s3://bucket/big/")
    next(ObjectCache(root / "cache", channel).open_objects(s3, channel, s3.objects(channel)))


def test_leftovers_of_a_killed_process_are_removed_by_the_next(store: Store, tmp_path: Path) -> None:
    (store.folder / "big").mkdir()
    (store.folder / "big/a").write_bytes(bytes(3_000_000))
    child = multiprocessing.get_context("fork").Process(target=read_half_and_die, args=(tmp_path,))
    child.start()
    child.join(PATIENCE)
    [part] = (tmp_path / "cache").rglob(f"{child.pid}-*")
    living = part.with_name(f"{os.getpid()}-{start_time(os.getpid())}-any")
    living.touch()
    ObjectCache(tmp_path / "cache", channel_of(tmp_path, "s3://bucket/big/"))
    assert not part.exists()
    assert living.exists(), "it is being written"
