"""Epochs that are left early: files are closed, and no close waits, so that a Ctrl-C in a finalizer is not lost.

Python finalizes a generator that no variable refers to any more, and drops exceptions raised there, a KeyboardInterrupt too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from format_channels import lines_channel
from patience import PATIENCE, wait_for
from pipe_feeder import make_root
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sources.prefetch import read_ahead
from sagemaker_channels.sources.stream import Limits
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A channel of one file of 100 lines."""
    return lines_channel(tmp_path, "lines", 1, 100)


def is_open(environment: Environment) -> bool:
    here = Path("/proc/self/fd")
    opened = {os.readlink(here / name) for name in os.listdir(here) if (here / name).is_symlink()}  # noqa: PTH115, PTH208
    return str(environment.channels["lines"].path / "0.txt") in opened


@contextmanager
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise AssertionError if this thread waits for another one."""
    this = threading.current_thread()

    def refusing(wait: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any, **options: Any) -> Any:
            assert threading.current_thread() is not this, "waits for another thread"
            return wait(*arguments, **options)

        return refuse

    with monkeypatch.context() as patch:
        for kind, name in ((threading.Thread, "join"), (threading.Event, "wait"), (threading.Condition, "wait")):
            patch.setattr(kind, name, refusing(getattr(kind, name)))
        yield


class Blocked:
    """An object of 100 bytes whose fetches last until `answer` is set."""

    key, ranges = "blocked", True
    size = 100

    def __init__(self) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()

    def fetch(self, start: int, count: int) -> bytes:
        if start:  # the first piece comes, so that reading has begun
            self.asked.set()
            assert self.answer.wait(PATIENCE)
        return bytes(count)

    def length(self) -> int:
        return self.size

    def close(self) -> None:
        """Nothing is kept open."""


class Short(Blocked):
    """An object that its first fetch reads whole."""

    size = 10


@pytest.mark.parametrize("reading", [{}, {"seed": 1, "block": 10}], ids=["", "shuffled"])
def test_file_of_an_epoch_left_early_is_closed(environment: Environment, reading: dict[str, Any]) -> None:
    with open_channel("lines", environment=environment, **reading) as samples:
        next(samples)
        assert is_open(environment)
    assert not is_open(environment)
    samples = open_channel("lines", environment=environment, **reading)
    next(samples)
    assert is_open(environment)
    del samples
    assert not is_open(environment)


def test_close_during_a_request_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Blocked()
    streams = read_ahead(iter([source]), Limits(held_bytes=64, piece_bytes=16), "a test")
    stream = next(streams)
    assert stream.read(1) == b"\0"
    assert source.asked.wait(PATIENCE)
    with no_waiting(monkeypatch):
        stream.close()
        streams.close()
    source.answer.set()
    wait_for(lambda: "prefetch" not in [thread.name for thread in threading.enumerate()])


def test_close_in_a_thread_that_holds_the_lock_returns() -> None:
    """Python's garbage collector finalizes generators in any thread, between any two instructions."""
    closed = list[bool]()

    class Closing(Blocked):
        @property
        def size(self) -> int:  # type: ignore[override]  # which is read with the lock held
            stream.close()
            streams.close()
            closed.append(True)
            return 100

    streams = read_ahead(iter([Short(), Closing()]), Limits(held_bytes=64, piece_bytes=16), "a test")
    stream = next(streams)
    with suppress(ChannelError):  # it may be closed before its bytes are there
        stream.read(1)
    wait_for(lambda: closed and "prefetch" not in [thread.name for thread in threading.enumerate()])


@pytest.fixture
def silent_pipe(tmp_path: Path) -> Iterator[Environment]:
    """A Pipe whose feeder writes 99 lines and then nothing more, its end neither."""
    make_root(tmp_path)
    fifo = tmp_path / contract.DATA_DIR / contract.fifo_name("lines", 0)
    os.mkfifo(fifo)
    done = threading.Event()

    def feed() -> None:
        with fifo.open("wb", buffering=0) as stream:
            stream.write(b"".join(b"%d\n" % number for number in range(99)))
            done.wait(PATIENCE)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    yield load_environment(tmp_path, {})
    done.set()
    feeder.join(PATIENCE)


def test_leaving_a_thread_loader_does_not_wait_for_a_silent_pipe(
    silent_pipe: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = iter(ThreadLoader(ChannelDataset("lines", environment=silent_pipe), 10, num_workers=2, collate_fn=list))
    next(batches)
    with no_waiting(monkeypatch):
        del batches


def test_leaving_shuffled_blocks_does_not_wait_for_a_silent_pipe(
    silent_pipe: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading: dict[str, Any] = {"seed": 1, "block": 10}
    other = open_channel("lines", environment=silent_pipe, shard=Shard(1, 2, 2), **reading)
    reader = threading.Thread(target=next, args=(other,), daemon=True)
    reader.start()
    samples = open_channel("lines", environment=silent_pipe, shard=Shard(0, 2, 2), **reading)
    for _ in range(40):  # four blocks: the fifth is being read and its last samples never come
        next(samples)
    reader.join(PATIENCE)
    with no_waiting(monkeypatch):
        samples.close()


def test_ctrl_c_while_a_thread_starts_leaves_no_error_at_exit() -> None:
    """Thread.start can be interrupted before the thread runs; the exit handler then joined a thread that was never started."""
    program = """
        import threading
        from sagemaker_channels.sources.prefetch import read_ahead
        from sagemaker_channels.sources.stream import Limits

        class Source:
            key, size, ranges = "a", 1, True

        def interrupted(thread):
            if thread.name == "prefetch":
                raise KeyboardInterrupt
            start(thread)

        start, threading.Thread.start = threading.Thread.start, interrupted
        streams = read_ahead(iter([Source()]), Limits(), "a test")
        next(streams).read(1)
    """
    done = run(program)
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr and "Exception ignored" not in done.stderr


def test_loop_that_is_left_open_until_python_exits_prints_nothing(environment: Environment) -> None:
    program = f"""
        from sagemaker_channels import ChannelDataset
        loop = iter(ChannelDataset({str(environment.channels["lines"].path)!r}))
        next(loop)
    """
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "entrypoints")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
