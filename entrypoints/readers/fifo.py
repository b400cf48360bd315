"""Pipe mode: SageMaker writes a channel's objects, one after the other, into a FIFO per epoch.

`<channel>_0` is read to its end or closed early; then `<channel>_1` is there at some moment, and so on: SageMaker makes the
next one only after the last one has been closed, so the reader waits for it. Which epochs these are depends on where the job
begins (`fifo_numbers`). A FIFO can have one reader: two would tear each other's bytes apart. Where one process of a host reads
a channel it does so here, directly; where several do, the host's broker reads it for them (`entrypoints/broker`), by the same
functions. Where several hosts get the same objects (FullyReplicated) each reads all and keeps its share of the samples.

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
from entrypoints.errors import ChannelError
from entrypoints.fetching.silence import Silence, tell_once
from entrypoints.job.environment import Channel
from entrypoints.job.process_identity import Processes, owner_process
from entrypoints.order.sharding import Share
from entrypoints.readers import fifo_numbers
from entrypoints.sample import ByteStream

JOINED = True

WAIT_SECONDS = (
    600.0  # for the FIFO, its first and any next bytes: whoever feeds it may have a million objects to list first
)
AGAIN_SECONDS = 10.0  # for one that this job has read before: only somebody who feeds it by hand can mean it
LEFT_SECONDS = 2.0  # for the feeder of a FIFO whose reader was killed to see that
PIPE_BYTES = 1 << 20  # what Linux lets anyone ask for; 64 KiB is the default


def open_streams(channel: Channel, epoch: int, share: Share) -> Iterator[tuple[str | None, ByteStream]]:
    """The one stream of a channel's epoch, all of it: `share` cannot apply before the records are told apart."""
    yield None, open_fifo(channel, epoch, wait_seconds())


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


def open_fifo(channel: Channel, epoch: int, seconds: float) -> FifoStream:
    """Opens the FIFO of an epoch once it and its writer are there; ChannelError if that takes longer than `seconds`.

    At once where a later epoch's FIFO is there: the one asked for has been read already.
    """
    awaited = Awaited(channel, epoch, Processes([owner_process()]))
    seconds = awaited.patience(seconds)
    deadline = time.monotonic() + seconds
    pause = 0.001
    try:
        while (descriptor := awaited.look()) is None:
            if time.monotonic() > deadline:
                raise awaited.in_vain(seconds)
            awaited.wait(pause)
            pause = min(2 * pause, 0.1)
    finally:
        awaited.close()
    return FifoStream(descriptor, Silence(f"channel {channel.name!r}: the feeder of {awaited.path}", seconds))


class Awaited:
    """The FIFO of an epoch (`fifo_numbers` says which that is), until it is there and its writer, too."""

    def __init__(self, channel: Channel, epoch: int, owners: Processes) -> None:
        self.descriptor = -1  # of one that has no writer yet
        self.path = fifo_path(channel, 0)
        self._channel, self._epoch, self._owners = channel, epoch, owners
        self._since = time.monotonic()
        self._left = -1  # the last FIFO that those have opened who read the channel before, and are no more
        self._number = None
        self._again = False  # whether this job has read it before
        noted = fifo_numbers.recall(channel)
        if noted is not None and noted.owners.any_running():
            self._number = epoch - noted.ahead
            self.path = fifo_path(channel, self._number)
            self._again = self._number <= noted.last
            if self._number < 0:
                raise read_already(channel.name, epoch, f"this job began with epoch {noted.ahead}")
        elif noted is not None:
            self._left = noted.last

    def look(self) -> int | None:
        """A descriptor of its own, once there is something to read; does not wait. ChannelError where it will never come."""
        # Before all else: what is short has been written, and its FIFO is gone, before one looks again.
        if not self.wait(0) and not (self._find() and self.wait(0)):
            return None
        number = int(self.path.name.rpartition("_")[2])
        fifo_numbers.note(self._channel, self._epoch, number, self._owners)
        descriptor, self.descriptor = self.descriptor, -1
        return descriptor

    def _find(self) -> bool:
        """Opens the FIFO, where it is there; another one than before, where that was no writer's."""
        if self._number is None:
            number = self._first()
            if number is None:
                return False
            if self.path != fifo_path(self._channel, number):
                if self.wait(0):  # it was written to, and its FIFO removed, since `look` began
                    return True
                self.close()
                self.path = fifo_path(self._channel, number)
        if self.descriptor < 0 and is_there(self.path, self._channel.name, self._epoch):
            self.descriptor = open_descriptor(self.path)
        return self.descriptor >= 0

    def wait(self, seconds: float) -> bool:
        """Until there may be something to see; whether its writer is there."""
        if self.descriptor < 0:
            time.sleep(seconds)
            return False
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def patience(self, seconds: float) -> float:
        """How long to wait for it, where `seconds` are the time for one that can be expected to come."""
        return min(seconds, AGAIN_SECONDS) if self._again else seconds

    def in_vain(self, seconds: float) -> ChannelError:
        """The error for a FIFO that nobody has made, or that nobody has written to, within so many seconds."""
        if self._again:
            reason = f"{self.path} was, and nobody has written to it again within {seconds:g} s"
            return read_already(self._channel.name, self._epoch, reason)
        wrong = never_came if self.descriptor < 0 else never_fed
        return wrong(self.path, self._channel.name, seconds)

    def close(self) -> None:
        """It is not waited for any longer."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _first(self) -> int | None:
        """The number of the FIFO for a job's first epoch: its own, where that is there and no former job's, else the last."""
        numbers = list(_numbers(self.path.parent, self._channel.name))
        if self._left < self._epoch and self._epoch in numbers:
            return self._epoch  # whoever tries a script by hand may have made them all beforehand
        newest = max(numbers, default=None)
        # Whoever fed a job that has just ended may not know yet, and would go on in the middle of its epoch.
        if newest is not None and newest <= self._left and time.monotonic() - self._since < LEFT_SECONDS:
            return None
        return newest


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
        tell_if_empty(self._silence)
        return count

    def read(self, size: int = -1, /) -> bytes:
        """See ByteStream."""
        if size < 0:
            return b"".join(iter(lambda: self.read(PIPE_BYTES), b""))
        while (data := self._file.read(size)) is None:
            self._wait()
        self._silence.bytes += len(data)
        tell_if_empty(self._silence)
        return data

    def close(self) -> None:
        """See ByteStream."""
        self._file.close()

    def _wait(self) -> None:
        self._silence.begin()
        while not self._poll.poll(1000 * self._silence.patience):
            self._silence.check()


def tell_if_empty(feeder: Silence) -> None:
    """Tells on stderr, after any read, that a FIFO has ended without a byte: an epoch without samples is seldom meant."""
    if not feeder.bytes:
        tell_once(
            f"{feeder.who} ended without a byte: this host has no samples in this epoch; look whether the channel's s3_uri "
            "holds objects (ShardedByS3Key gives none to some hosts where there are fewer objects than hosts)"
        )


def is_there(path: Path, channel: str, epoch: int) -> bool:
    """Whether an epoch's FIFO can be opened; ChannelError where it will never come, or is something else."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        number = int(path.name.rpartition("_")[2])
        later = [found for found in _numbers(path.parent, channel) if found > number]
        if later and not path.exists():  # it can have come meanwhile
            raise read_already(channel, epoch, f"the FIFO of epoch {epoch + later[0] - number} is there") from None
        return False
    if not stat.S_ISFIFO(mode):
        raise ChannelError(f"channel {channel!r}: {path} is not a FIFO, which input mode Pipe needs; remove it")
    return True


def _numbers(folder: Path, channel: str) -> list[int]:
    """Of the channel's FIFOs that are there."""
    pattern = re.compile(re.escape(channel) + r"_(0|[1-9]\d*)")
    try:  # the folder can be made later, too
        return [int(found[1]) for path in folder.iterdir() if (found := pattern.fullmatch(path.name))]
    except OSError:
        return []


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
        f"channel {channel!r}: epoch {epoch} was read already ({reason}); a Pipe brings each epoch once: count epochs one up "
        "each time (set_epoch, or open_channel's epoch)"
    )


def never_came(path: Path, channel: str, seconds: float) -> ChannelError:
    """The error for a FIFO that nobody has made."""
    return ChannelError(
        f"channel {channel!r}: the FIFO {path} did not appear within {seconds:g} s; each epoch has its own and "
        f"can be read once: count epochs one up each time (or wait longer: {contract.FIFO_WAIT_VARIABLE})"
    )


def never_fed(path: Path, channel: str, seconds: float) -> ChannelError:
    """The error for a FIFO that nobody has written to."""
    return ChannelError(
        f"channel {channel!r}: nothing was written to the FIFO {path} within {seconds:g} s; look whether its feeder is alive, and "
        "whether this epoch was read before: a Pipe brings each once, so count them up by set_epoch, or open_channel's epoch (or "
        f"wait longer: {contract.FIFO_WAIT_VARIABLE})"
    )
