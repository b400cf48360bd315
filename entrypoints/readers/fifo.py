"""Pipe mode: SageMaker writes a channel's objects, one after the other, into a FIFO per epoch.

`<channel>_0` is read to its end or closed early; then `<channel>_1` is there at some moment, and so on: SageMaker makes the
next one only after the last one has been closed, so the reader waits for it. A FIFO can have one reader: two would
tear each other's bytes apart. Where one process of a host reads a channel it does so here, directly; where several do,
the host's broker reads it for them (`entrypoints/broker`), by the same functions. Where several hosts get the same
objects (FullyReplicated) each reads all and keeps its share of the samples.

A feeder that falls silent is told of on stderr, and given up at last: a job that waits costs as much as one that works.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from entrypoints import contract
from entrypoints.environment import Channel
from entrypoints.errors import ChannelError
from entrypoints.sample import ByteStream
from entrypoints.sharding import Share

JOINED = True

WAIT_SECONDS = (
    600.0  # for the FIFO, its first and any next bytes: whoever feeds it may have a million objects to list first
)
TELL_SECONDS = 60.0  # of silence until it is told of; then after twice as long, and so on
PIPE_BYTES = 1 << 20  # what Linux lets anyone ask for; 64 KiB is the default


def open_streams(channel: Channel, epoch: int, share: Share) -> Iterator[tuple[str | None, ByteStream]]:
    """The one stream of a channel's epoch, all of it: `share` cannot apply before the records are told apart."""
    yield None, open_fifo(fifo_path(channel, epoch), channel.name, wait_seconds())


def objects(channel: Channel) -> NoReturn:
    """A FIFO has no objects, but one stream of all. Raises ChannelError."""
    raise ChannelError(
        f"channel {channel.name!r}: a Pipe cannot be listed, so its objects cannot be chosen; use input_mode: FastFile"
    )


def open_objects(channel: Channel, chosen: Iterable[Any]) -> NoReturn:
    """As `objects`."""
    objects(channel)


def key_of(channel: Channel, item: Any) -> NoReturn:
    """As `objects`."""
    objects(channel)


def fifo_path(channel: Channel, epoch: int) -> Path:
    """Where the FIFO of a channel's epoch is, or will be."""
    return channel.path.with_name(contract.fifo_name(channel.name, epoch))


def wait_seconds() -> float:
    """How long to wait for a FIFO or a feeder."""
    return float(os.environ.get(contract.FIFO_WAIT_VARIABLE) or WAIT_SECONDS)


def open_fifo(path: Path, channel: str, seconds: float) -> FifoStream:
    """Opens a FIFO for reading once it exists and its writer is there; ChannelError if that takes longer than `seconds`.

    At once where a later epoch's FIFO is there: the one asked for has been read already.
    """
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not is_there(path, channel):
        if time.monotonic() > deadline:
            raise never_came(path, channel, seconds)
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    descriptor = open_descriptor(path)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise never_fed(path, channel, seconds)
    except BaseException:
        os.close(descriptor)
        raise
    return FifoStream(descriptor, Silence(f"channel {channel!r}: the feeder of {path}", seconds))


class FifoStream:
    """The bytes of one epoch, in the calling process; ChannelError where the feeder has been silent for too long."""

    def __init__(self, descriptor: int, silence: Silence) -> None:
        self._file = FileIO(descriptor)
        self._silence = silence
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readinto(self, buffer: memoryview, /) -> int:
        """See ByteStream."""
        while (count := self._file.readinto(buffer)) is None:
            self._wait()
        self._silence.bytes += count
        return count

    def read(self, size: int = -1, /) -> bytes:
        """See ByteStream."""
        if size < 0:
            return b"".join(iter(lambda: self.read(PIPE_BYTES), b""))
        while (data := self._file.read(size)) is None:
            self._wait()
        self._silence.bytes += len(data)
        return data

    def close(self) -> None:
        """See ByteStream."""
        self._file.close()

    def _wait(self) -> None:
        self._silence.begin()
        while not self._poll.poll(1000 * self._silence.patience):
            self._silence.check()


class Silence:
    """How long a feeder has sent nothing, and what follows from that."""

    def __init__(self, who: str, seconds: float) -> None:
        self.bytes = 0  # that have come so far
        self.patience = min(1.0, seconds / 4)  # seconds between two checks
        self.who = who
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        """The feeder is waited for from now on."""
        self._since = time.monotonic()
        self._tell_at = TELL_SECONDS

    def check(self) -> None:
        """Tells of a long silence on stderr, and raises ChannelError where it is too long."""
        silent = time.monotonic() - self._since
        text = f"{self.who} has sent nothing for {silent:.0f} s, after {self.bytes:,} bytes of the epoch"
        if silent >= self._seconds:
            raise ChannelError(
                f"{text}; look whether it is alive (or wait longer: {contract.FIFO_WAIT_VARIABLE}={self._seconds:g})"
            )
        if silent >= self._tell_at:
            self._tell_at *= 2
            tell(text)


def tell(text: str) -> None:
    """A line for the job's log, which nobody has to read."""
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def is_there(path: Path, channel: str) -> bool:
    """Whether a FIFO can be opened; ChannelError where it will never come, or is something else."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        prefix, _, epoch = path.name.rpartition("_")
        pattern = re.compile(re.escape(prefix) + r"_(\d+)")
        with suppress(OSError):  # the folder can be made later, too
            for entry in os.scandir(path.parent):
                found = pattern.fullmatch(entry.name)
                later = found and int(found[1]) > int(epoch) and stat.S_ISFIFO(entry.stat().st_mode)
                if found and later and not path.exists():  # it can have come meanwhile
                    raise read_already(channel, int(epoch), f"the FIFO of epoch {found[1]} is there") from None
        return False
    if not stat.S_ISFIFO(mode):
        raise ChannelError(f"channel {channel!r}: {path} is not a FIFO, which input mode Pipe needs; remove it")
    return True


def open_descriptor(path: Path) -> int:
    """The FIFO's reading end, made bigger; its writer need not be there yet.

    On Linux it does not block, which leaves waiting to poll: that reports nothing until a writer has been there.
    """
    on_linux = sys.platform == "linux"
    descriptor = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if on_linux else 0))
    # A bigger pipe saves most of the switches between writer and reader. Refused where the user's pipes hold too much
    # already: the pipe then works as it is.
    with suppress(OSError, AttributeError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return descriptor


def read_already(channel: str, epoch: int, reason: str) -> ChannelError:
    """The error for who asks for an epoch a second time."""
    return ChannelError(
        f"channel {channel!r}: epoch {epoch} was read already ({reason}); a Pipe brings each epoch once: count epochs from "
        "0, one up each time (set_epoch, or open_channel's epoch)"
    )


def never_came(path: Path, channel: str, seconds: float) -> ChannelError:
    """The error for a FIFO that nobody has made."""
    return ChannelError(
        f"channel {channel!r}: the FIFO {path} did not appear within {seconds:g} s; each epoch has its own and "
        f"can be read once: count epochs from 0, one up each time (or wait longer: {contract.FIFO_WAIT_VARIABLE})"
    )


def never_fed(path: Path, channel: str, seconds: float) -> ChannelError:
    """The error for a FIFO that nobody has written to."""
    return ChannelError(
        f"channel {channel!r}: nothing was written to the FIFO {path} within {seconds:g} s; look whether its "
        f"feeder is alive (or wait longer: {contract.FIFO_WAIT_VARIABLE})"
    )
