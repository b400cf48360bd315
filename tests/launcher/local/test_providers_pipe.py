"""Pipe mode through real FIFOs, from a real endpoint: epochs, early closes, errors, and leaving."""

from __future__ import annotations

import gzip
import os
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import RefusedError
from launcher.local.channels.fifo import provide
from launcher.local.channels.stores import Store
from patience import PATIENCE, wait_for
from pipe_deliveries import Deliver, epochs, fifo
from s3_objects import client_of_job, remote_objects
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources.tee import open_stream


def test_every_epoch_sends_all_objects_and_reports_its_bytes(deliver: Deliver, folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(name.encode() * 100_000)
    counts: list[int] = []
    delivery = deliver(on_bytes=counts.append)
    assert epochs(delivery, 3) == [b"a" * 100_000 + b"b" * 100_000 + b"c" * 100_000] * 3
    assert sum(counts) >= 900_000
    assert list(delivery.data_dir.iterdir()) == []


def test_resumed_job_begins_with_fifo_0(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    delivery = deliver()
    channel = Channel("train", "Pipe", "text/plain", "FullyReplicated", "None", delivery.data_dir / "train")
    for begin in (0, 3, 1):  # runs that take each other's place, as a job does after a spot interruption
        with provide(delivery):
            for epoch in range(begin, begin + 3):
                stream = open_stream(channel, epoch, 1, reader=0)
                assert stream is not None
                with closing(stream):
                    assert stream.read() == b"a"
                assert not (delivery.data_dir / f"train_{epoch - begin + 2}").exists()
        assert list(delivery.data_dir.iterdir()) == []


def test_next_fifo_exists_at_the_end_of_the_current_one_and_replaces_it(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"x" * 5_000_000)  # more than a pipe holds
    delivery = deliver()
    with provide(delivery):
        with fifo(delivery, 0).open("rb", buffering=0) as reader:
            assert reader.read(2) == b"xx"
            assert not (delivery.data_dir / "train_1").exists()
            assert len(reader.readall()) == 4_999_998
            assert (delivery.data_dir / "train_1").is_fifo()
        wait_for(lambda: [path.name for path in delivery.data_dir.iterdir()] == ["train_1"])


@pytest.mark.parametrize("size", [10, 30_000_000])
def test_early_close_starts_the_next_epoch(deliver: Deliver, folder: Path, size: int) -> None:
    (folder / "a").write_bytes(b"x" * size)
    delivery = deliver()
    with provide(delivery):
        for epoch in range(3):
            with fifo(delivery, epoch).open("rb", buffering=0) as reader:
                assert reader.read(5) == b"xxxxx"
        assert len(fifo(delivery, 3).read_bytes()) == size


def test_leaving_does_not_wait_for_a_store_that_hangs(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    delivery = deliver()
    client = client_of_job(delivery.store.environ)
    asked, go_on = threading.Event(), threading.Event()

    def hang(**request: object) -> None:
        asked.set()
        go_on.wait(PATIENCE)

    client.meta.events.register("before-send.s3.GetObject", hang)
    delivery = replace(delivery, store=Store(remote_objects(client), delivery.store.environ, remote=True))
    begun = time.monotonic()
    with provide(delivery):
        reading = threading.Thread(target=fifo(delivery, 0).read_bytes)
        reading.start()
        assert asked.wait(PATIENCE)
    assert time.monotonic() - begun < PATIENCE / 2
    go_on.set()
    reading.join(PATIENCE)


def test_error_within_an_epoch_is_reported_and_the_reader_sees_no_end(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(gzip.compress(b"good"))
    (folder / "b").write_bytes(b"no gzip")
    errors: list[Exception] = []
    got = bytearray()
    ended = threading.Event()

    def read(path: Path) -> None:
        with path.open("rb", buffering=0) as reader:
            while chunk := reader.read(100):
                got.extend(chunk)
        ended.set()

    delivery = deliver({"CompressionType": "Gzip"}, on_error=errors.append)
    with provide(delivery):
        reading = threading.Thread(target=read, args=(fifo(delivery, 0),))
        reading.start()
        wait_for(lambda: errors)
        assert not ended.wait(0.3)
        assert got == b"good"
        assert "s3://bucket/train/b: not readable as gzip" in str(errors[0])
        assert not (delivery.data_dir / "train_1").exists()
    reading.join(PATIENCE)
    assert ended.is_set()  # not before the runner has left the provider


def test_object_removed_before_the_next_epoch_is_reported(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"ab")
    errors: list[Exception] = []
    delivery = deliver(on_error=errors.append)
    with provide(delivery):
        with fifo(delivery, 0).open("rb", buffering=0) as reader:
            assert reader.read(1) == b"a"
            (folder / "a").unlink()
            assert reader.read() == b"b"
        with fifo(delivery, 1).open("rb"):
            wait_for(lambda: errors)
    assert "s3://bucket/train/a: there is no " in str(errors[0])


@pytest.mark.parametrize("reader", ["none", "opened", "stuck"])
def test_leaving_is_prompt_whatever_the_reader_does(deliver: Deliver, folder: Path, reader: str) -> None:
    (folder / "a").write_bytes(bytes(30_000_000))
    delivery = deliver()
    opened = -1
    with provide(delivery):
        if reader != "none":
            opened = os.open(fifo(delivery, 0), os.O_RDONLY)
        if reader == "stuck":
            assert os.read(opened, 10)
    assert list(delivery.data_dir.iterdir()) == []
    assert not [each for each in threading.enumerate() if each.name == "pipe-train"]
    if opened >= 0:
        os.close(opened)


def test_job_may_remove_its_fifo(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    delivery = deliver()
    with provide(delivery):
        fifo(delivery, 0).unlink()


@pytest.mark.parametrize("kind", ["link to a file", "link to a FIFO", "file", "folder", "link to nothing"])
@pytest.mark.parametrize("epoch", [0, 1])
def test_nothing_is_written_into_what_the_job_put_in_place_of_its_fifo(
    deliver: Deliver, folder: Path, tmp_path: Path, kind: str, epoch: int
) -> None:
    """A link in a container leads to a file of this machine here."""
    (folder / "a").write_bytes(b"sent")
    mine, trap = tmp_path / "authorized_keys", tmp_path / "trap"
    mine.write_text("mine")
    if kind == "folder":
        trap.mkdir()
    elif kind == "file":
        trap.write_text("mine")
    else:
        trap.symlink_to(mine)
    if kind == "link to a FIFO":
        mine.unlink()
        os.mkfifo(mine)
    if kind == "link to nothing":
        mine.unlink()
    other = os.open(mine, os.O_RDONLY | os.O_NONBLOCK) if kind == "link to a FIFO" else -1
    delivery = deliver()
    with provide(delivery):
        for earlier in range(epoch):
            assert fifo(delivery, earlier).read_bytes() == b"sent"
        place = fifo(delivery, epoch)
        if kind == "folder":
            place.unlink()
        trap.rename(place)
        time.sleep(0.2)  # the provider looks for a reader every 0.05 s
        if other >= 0:
            assert os.read(other, 100) == b""
            os.close(other)
        elif kind != "folder":
            assert (mine.exists(), place.is_symlink()) == (kind != "link to nothing", kind != "file")
            assert not place.exists() or place.read_text() == "mine"
    assert list(delivery.data_dir.iterdir()) == []
    assert mine.exists() == (kind != "link to nothing")


def test_existing_name_of_a_fifo_is_refused(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    delivery = deliver()
    (delivery.data_dir / "train_0").mkdir(parents=True)
    with pytest.raises(RefusedError, match=r"cannot make the FIFO of epoch 0, .*another channel"), provide(delivery):
        pytest.fail("entered")
    assert (delivery.data_dir / "train_0").is_dir()
