"""Pipe mode with one reader: FIFOs that appear late, stay empty, are closed early or never written to."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from object_channels import on_disk
from patience import PATIENCE
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources import tee


def open_fifo(pipe: Channel, epoch: int = 0) -> Any:
    return tee.open_stream(pipe, epoch, 1, reader=0)


def read_fifo(pipe: Channel, epoch: int = 0) -> bytes:
    with closing(open_fifo(pipe, epoch)) as stream:
        return bytes(stream.read())


def feed(path: Path, data: bytes) -> threading.Thread:
    """Writes into a FIFO as SageMaker does: made, filled, and gone when it has been read or closed."""

    def run() -> None:
        if not path.exists():
            os.mkfifo(path)
        try:
            with path.open("wb", buffering=0) as stream:
                view = memoryview(data)
                while view:
                    view = view[stream.write(view) :]
        except BrokenPipeError:
            pass
        path.unlink()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_each_epoch_is_read_from_its_fifo(tmp_path: Path) -> None:
    pipe = on_disk(tmp_path / "train", "Pipe")
    data = os.urandom(3_000_000)
    for epoch in (0, 1):
        feeder = feed(tmp_path / f"train_{epoch}", data[epoch:])
        assert read_fifo(pipe, epoch) == data[epoch:]
        feeder.join()


@pytest.mark.parametrize("exists", [False, True])
def test_fifo_or_writer_that_is_late_is_waited_for(tmp_path: Path, exists: bool) -> None:
    if exists:
        os.mkfifo(tmp_path / "train_0")
    timer = threading.Timer(0.1, lambda: feed(tmp_path / "train_0", b"late").join())
    timer.start()
    assert read_fifo(on_disk(tmp_path / "train", "Pipe")) == b"late"
    timer.join()


def test_empty_fifo_yields_no_bytes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train_0")
    feeder = feed(tmp_path / "train_0", b"")
    assert read_fifo(on_disk(tmp_path / "train", "Pipe")) == b""
    feeder.join()


def test_closing_a_fifo_early_ends_the_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train_0")
    feeder = feed(tmp_path / "train_0", bytes(50_000_000))
    stream = open_fifo(on_disk(tmp_path / "train", "Pipe"))
    assert stream.read(10)
    stream.close()
    feeder.join(timeout=PATIENCE)
    assert not feeder.is_alive()


@pytest.mark.linux
def test_missing_or_silent_fifo_raises_after_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHER_FIFO_WAIT_SECONDS", "0.05")
    pipe = on_disk(tmp_path / "train", "Pipe")
    with pytest.raises(ChannelError, match=r"channel 'train': the FIFO .*/train_0 did not appear within 0.05 s"):
        read_fifo(pipe, 3)
    os.mkfifo(tmp_path / "train_0")
    with pytest.raises(
        ChannelError, match=r"channel 'train': nothing was written to the FIFO .*/train_0 within 0.05 s"
    ):
        read_fifo(pipe)
    (tmp_path / "train_1").write_bytes(b"")
    with pytest.raises(ChannelError, match=r"train_1 is not a FIFO"):
        read_fifo(pipe, 1)
