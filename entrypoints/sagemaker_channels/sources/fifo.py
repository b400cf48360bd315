"""Pipe mode: SageMaker writes a channel's objects, one after the other, into a FIFO per epoch.

SageMaker makes `<channel>_1` only after `<channel>_0` was read to its end or closed early, so the reader waits for it.
`pipe_record` maps a job's epochs to these numbers. A FIFO can have one reader: two would each get pieces of the stream. The only
reader of a host gets a FifoStream; several share what is read (`tee.py`). If several hosts get the same objects (FullyReplicated),
each reads all of them and keeps its shard of the samples.

A silent feeder is reported on stderr, and at last an error: a job that waits costs as much as one that works.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.meter import received, waited
from sagemaker_channels.sources import pipe_record
from sagemaker_channels.sources.pipe_record import read_already
from sagemaker_channels.sources.silence import Silence, warn_once

LEFT_SECONDS = 2.0  # for a feeder to notice that its reader was killed
PIPE_BYTES = 1 << 20  # the most that Linux grants any user; the default is 64 KiB
# On Linux, opening needs no writer; poll() reports nothing until there is one.
READING = os.O_RDONLY | (os.O_NONBLOCK if sys.platform == "linux" else 0)


class PendingFifo:
    """The FIFO of an epoch until it and its writer exist. Making one raises ChannelError if the job began with a later epoch."""

    def __init__(self, channel: Channel, epoch: int) -> None:
        self.descriptor = -1  # of a FIFO without a writer
        self.path = _path(channel, 0)
        self._channel, self._epoch = channel, epoch
        self._since = time.monotonic()
        self._left = -1  # the last FIFO opened by an earlier job whose processes have ended
        self._number = None
        opened = pipe_record.last_opened(channel)
        if opened is not None and opened.is_valid:
            self._number = epoch - opened.ahead
            self.path = _path(channel, self._number)
            if self._number < 0:
                raise read_already(channel.name, epoch, f"this job began with epoch {opened.ahead}")
        elif opened is not None:
            self._left = opened.last

    def try_open(self) -> int | None:
        """Return a descriptor if there is something to read, else None, without waiting.

        Raises ChannelError if the FIFO was read already, or its path is not a FIFO.
        """
        # First, because a feeder may have written a short epoch and removed its FIFO since the last call.
        if not self.wait(0) and not (self._find() and self.wait(0)):
            return None
        number = int(self.path.name.rpartition("_")[2])
        pipe_record.record_opened(self._channel, self._epoch, number)
        descriptor, self.descriptor = self.descriptor, -1
        return descriptor

    def _find(self) -> bool:
        """Open the FIFO if it exists; a newer one replaces one that has no writer."""
        if self._number is None:
            number = self._first()
            if number is None:
                return False
            if self.path != _path(self._channel, number):
                if self.wait(0):  # It was written to and removed since `try_open` began.
                    return True
                self.close()
                self.path = _path(self._channel, number)
        if self.descriptor < 0:
            self.descriptor = _open_descriptor(self.path, self._channel.name)
        return self.descriptor >= 0

    def wait(self, seconds: float) -> bool:
        """Wait until there may be a change, and return whether the FIFO has a writer."""
        if self.descriptor < 0:
            time.sleep(seconds)
            return False
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def lacking(self, seconds: float) -> str:
        """Return, in words, that no feeder made the FIFO, or wrote to it, within so many seconds."""
        if self.descriptor < 0:
            return f"the FIFO {self.path} did not appear within {seconds:g} s"
        return f"nothing was written to the FIFO {self.path} within {seconds:g} s; check that its feeder runs"

    def timeout_error(self, seconds: float) -> ChannelError:
        return ChannelError(
            self.lacking(seconds),
            channel=self._channel.name,
            remedy="an epoch's FIFO can be read once, so count epochs up (set_epoch, or open_channel's epoch), or wait longer"
            f" ({contract.FIFO_WAIT_VARIABLE})",
        )

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _first(self) -> int | None:
        """Return the number of the FIFO for a job's first epoch: its own if it exists and no earlier job read it, else the last."""
        numbers = list(_numbers(self.path.parent, self._channel.name))
        if self._left < self._epoch and self._epoch in numbers:
            return self._epoch  # A user who tries a script by hand may have made all FIFOs beforehand.
        newest = max(numbers, default=None)
        # The feeder of a job that has just ended may not have noticed, and would continue in the middle of its epoch.
        if newest is not None and newest <= self._left and time.monotonic() - self._since < LEFT_SECONDS:
            return None
        return newest


class FifoStream:
    """The bytes of one epoch for a host's only reader; reading raises ChannelError if the feeder is silent for too long."""

    left = (0,)  # as of a RingStream; it lends no bytes

    def __init__(self, descriptor: int, silence: Silence) -> None:
        self._file, self._silence, self._busy = FileIO(descriptor), silence, threading.Lock()
        self._why_ended = ""

    @property
    def is_open(self) -> bool:
        return not self._file.closed

    def readinto(self, buffer: memoryview, /) -> int:
        return self._received(self._got(self._file.readinto, buffer))

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(PIPE_BYTES), b""))
        data: bytes = self._got(self._file.read, size)
        self._received(len(data))
        return data

    def close(self) -> None:
        self._file.close()

    drop = close

    def end_for(self, epoch: int) -> None:
        self._why_ended = ended_for(epoch)
        if self._busy.acquire(blocking=False):  # Otherwise the thread that reads it notices.
            self._file.close()
            self._busy.release()

    def _got(self, read: Callable[[Any], Any], wanted: Any) -> Any:
        """Return what a method of the file reads, as soon as there is something, or at the end."""
        with self._busy:
            while True:
                if self._why_ended:
                    self._file.close()
                    raise ChannelError(f"{self._silence.who}: {self._why_ended}")
                if (got := read(wanted)) is not None:
                    return got
                self._wait()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        self._silence.begin()
        begin = time.perf_counter()
        while not poll.poll(1000 * self._silence.patience):
            self._silence.check()
        waited(begin)

    def _received(self, count: int) -> int:
        self._silence.bytes += count
        received(count)
        if not self._silence.bytes:
            warn_of_nothing(self._silence.who)
        return count


def ended_for(epoch: int) -> str:
    """Return why a stream ends that was left open."""
    return f"this reader asked for epoch {epoch}, and gets no more of it"


def warn_of_nothing(who: str) -> None:
    """Warn of an epoch without samples, which is rarely intended."""
    warn_once(
        f"{who} ended without a byte: this host has no samples in this epoch; check that the channel's s3_uri "
        "holds objects (with ShardedByS3Key and fewer objects than hosts, some hosts get none)"
    )


def _path(channel: Channel, number: int) -> Path:
    return channel.path.with_name(contract.fifo_name(channel.name, number))


def _numbers(folder: Path, channel: str) -> list[int]:
    """Return the numbers of the channel's FIFOs that exist."""
    pattern = re.compile(re.escape(channel) + r"_(0|[1-9]\d*)")
    return [int(found[1]) for path in folder.iterdir() if (found := pattern.fullmatch(path.name))]


def _open_descriptor(path: Path, channel: str) -> int:
    """Open a FIFO and enlarge its buffer; return -1 if it does not exist. Raises ChannelError if it is not a FIFO.

    The path is not checked before it is opened, because a feeder may remove it at any moment.
    """
    try:
        descriptor = os.open(path, READING)
    except FileNotFoundError:
        return -1
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ChannelError(f"{path} is not a FIFO, which input mode Pipe needs", channel=channel, remedy="remove it")
    # A larger buffer saves most switches between writer and reader. Linux refuses it if the user's pipes are too large together;
    # the pipe then works as it is.
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return descriptor
