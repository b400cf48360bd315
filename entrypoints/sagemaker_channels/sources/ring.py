"""The memory that the readers of a Pipe on a host share: a ring of bytes, and how far each of them is.

The kernel's lock on the memory selects which reader reads the FIFO into it, and is released if that reader dies. The slowest one
sets the pace, and is named on stderr if it reads nothing for long. One that leaves, dies, or asks for a later epoch is not waited
for. When all have, no process has the FIFO open, and its feeder continues.

The ring is small. So a reader that waits for another one outside of the stream, as ranks in lockstep do, must have read what the
other one needs until then: if n readers take every n-th sample, each reads a round of n samples before it yields its own. A reader
that skips damaged samples needs more than the others, without a limit that is known. For such a one the ring grows.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import is_running, unnamed_file
from sagemaker_channels.meter import received, waited
from sagemaker_channels.sources import fifo, pipe_record
from sagemaker_channels.sources.pipe_record import Request, wait_seconds
from sagemaker_channels.sources.silence import WARN_SECONDS, Silence, warn

RING_BYTES = 8 << 20  # With 4 MiB, 2 and 8 ranks take as much processor time, or some percent more.
MOST_RINGS = 7  # Each is twice as large as the one before: 1 GiB together.
GROW_SECONDS = 1.0  # that a reader which may need more waits for one that does not read
_HOLD_SECONDS = 0.05  # for which a reader waits for bytes before it lets another one do so, which may have missed some
_GIVE_WAY_SECONDS = 0.001  # for the slowest reader to read
_CHECK_SECONDS = 0.2  # between two checks of whether the readers that are behind still run
_PAUSE_SECONDS = 0.02  # between two checks of whether all readers have opened the ring, at most
# The memory begins with an error's text and a row of numbers, which are positions in the epoch unless another meaning is given.
_TEXT_BYTES, _HEAD_BYTES = 1 << 12, 1 << 16
_MEMORY_BYTES = _HEAD_BYTES + (RING_BYTES << MOST_RINGS) - RING_BYTES
_WRITTEN = 0  # the end of the bytes in the ring
_IS_READ = 1  # whether a reader is just reading the FIFO
_ENDED = 2  # 1 after the last byte, plus the size of the error's text
_BEGINS = 3  # where each ring begins; 0 for those that are not used yet
_READERS = _BEGINS + MOST_RINGS  # for each reader:
_OPENED, _LEFT, _EACH = 1, 2, 3  # how far it is, whether it has opened the ring, whether it has left


def memory() -> int:
    """Return the descriptor of the memory for an epoch, which takes no room before it is written."""
    descriptor = unnamed_file("launcher-tee")
    os.ftruncate(descriptor, _MEMORY_BYTES)
    return descriptor


class RingStream:
    """A reader's bytes of one epoch. Once `left[0]` is not 0, other bytes may have been written over those that it has.

    `about` has the FIFO's path, and the name, rank and process of each reader. `may_grow` says whether this reader may need much
    more than the others.
    """

    def __init__(self, channel: Channel, own: Request, about: dict[str, Any], may_grow: Callable[[], bool]) -> None:
        self._channel, self._own, self._readers, self._may_grow = channel, own, about["readers"], may_grow
        self._who = f"channel {channel.name!r}: the feeder of {about['fifo']}"
        self._memory, self._fifo = own.files
        self.is_open, self._busy, self._poll = True, threading.Lock(), select.poll()
        self._poll.register(self._fifo, select.POLLIN)
        shared = memoryview(mmap.mmap(self._memory, _MEMORY_BYTES))
        self._text, self._numbers = shared[:_TEXT_BYTES], shared[_TEXT_BYTES:_HEAD_BYTES].cast("q")
        self._rings = [shared[_HEAD_BYTES + _place(number) :][: RING_BYTES << number] for number in range(MOST_RINGS)]
        self._read = self._number = 0  # of the ring
        self._slots = range(_READERS, _READERS + _EACH * len(self._readers), _EACH)
        self._slot = next(s for s, (name, *_) in zip(self._slots, self._readers, strict=True) if name == own.name)
        self.left: Sequence[int] = self._numbers[self._slot + _LEFT :]
        self._numbers[self._slot + _OPENED] = 1

    def wait_for_others(self) -> None:
        """Wait until the others have opened the ring: they need this process for that."""
        pause = 0.001
        while not all(self._numbers[slot + _OPENED] or self._numbers[slot + _LEFT] for slot in self._slots):
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS)
            self._drop_those_gone()

    def readinto(self, buffer: memoryview, /) -> int:
        piece = self.lend(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(fifo.PIPE_BYTES), b""))
        return self.lend(size).tobytes()

    def lend(self, size: int, /) -> memoryview:
        """Return up to so many of the next bytes in place, none only at the end. Until the next call they stay, if `left` does."""
        with self._busy:
            piece = self._next(size)
            self.check_not_left()
            self._read += len(piece)
            received(len(piece))
            return piece

    def close(self) -> None:
        if self.is_open:
            self._leave()
            self.left = (0,)  # No more samples are made.
            self.drop()
            pipe_record.leave(self._channel, self._own, lost=True)

    def end_for(self, epoch: int) -> None:
        """End this stream, which was left open, for the reader's next epoch."""
        self._why_left = fifo.ended_for(epoch)
        self._leave()
        if self._busy.acquire(blocking=False):  # Otherwise the thread that reads it notices.
            self.drop()
            self._busy.release()

    def drop(self) -> None:
        """Close the files without leaving the other readers."""
        if self.is_open:
            self.is_open = False
            os.close(self._fifo)
            os.close(self._memory)

    def _leave(self) -> None:
        self._numbers[self._slot + _LEFT] = 1

    _why_left = "the stream is closed"

    def check_not_left(self) -> None:
        """Raise ChannelError if this reader gets no more."""
        if self._numbers[self._slot + _LEFT]:
            raise ChannelError(f"channel {self._channel.name!r}, epoch {self._own.epoch}: {self._why_left}")

    def _next(self, size: int) -> memoryview:
        """Wait for bytes and return the next ones, up to a size; none only at the end."""
        numbers, number = self._numbers, self._number
        numbers[self._slot] = self._read  # not earlier: until now its last bytes may have been in use
        if self._read == numbers[_WRITTEN]:
            begin = time.perf_counter()
            self._wait()
            waited(begin)
        end = numbers[_WRITTEN]
        while number + 1 < MOST_RINGS and (after := numbers[_BEGINS + number + 1]):
            if self._read < after:
                end = after
                break
            self._number = number = number + 1
        start = (self._read - numbers[_BEGINS + number]) % (RING_BYTES << number)
        return self._rings[number][start : start + min(size, fifo.PIPE_BYTES, end - self._read)]

    def _wait(self) -> None:
        """Return when there are bytes, or at the end. Raises ChannelError."""
        numbers, silence = self._numbers, Silence(self._who, wait_seconds())
        silence.bytes = self._read
        while self._read == numbers[_WRITTEN]:
            self.check_not_left()
            if ended := numbers[_ENDED]:
                if ended > 1:
                    raise ChannelError(bytes(self._text[: ended - 1]).decode(errors="replace"))
                return
            room: memoryview | None = None
            fcntl.flock(self._memory, fcntl.LOCK_EX)
            try:
                if self._read == numbers[_WRITTEN] and not numbers[_ENDED] and (room := self._room()):
                    self._fill(room, silence)
            finally:
                fcntl.flock(self._memory, fcntl.LOCK_UN)
            if room is not None and not room:
                self.give_way()

    def _fill(self, room: memoryview, silence: Silence) -> None:
        """Read bytes of the FIFO into the ring, if there are any within a moment."""
        numbers, written = self._numbers, self._numbers[_WRITTEN]
        try:
            if numbers[_IS_READ]:  # The kernel took the lock from a process that died.
                raise ChannelError(
                    f"{self._who}: a reader was killed while it read the Pipe for this host, after {written:,} bytes of "
                    f"epoch {self._own.epoch}",
                    remedy="see its log for why, and start the job again",
                )
            numbers[_IS_READ] = 1
            try:  # before poll(), which does not report an end from before this reader has opened the FIFO
                count = os.readv(self._fifo, [room])
            except BlockingIOError:
                numbers[_IS_READ] = 0
                if not self._poll.poll(1000 * _HOLD_SECONDS):
                    silence.check()
                return
            numbers[_WRITTEN] = written + count
            numbers[_IS_READ] = 0
            numbers[_ENDED] = not count
            if not count and not written:
                fifo.warn_of_nothing(self._who)
        except (ChannelError, OSError) as error:
            self._end(str(error) if isinstance(error, ChannelError) else f"{self._who} cannot be read: {error}")

    def _end(self, error: str) -> None:
        text = error.encode()[:_TEXT_BYTES]
        self._text[: len(text)] = text
        self._numbers[_ENDED] = 1 + len(text)

    def _last(self) -> int:
        """Return the number of the ring that bytes are written to."""
        return max(number for number in range(MOST_RINGS) if not number or self._numbers[_BEGINS + number])

    def _slowest(self) -> tuple[int, int]:
        """Return how far the reader is that is most behind, and its slot.

        Each position is read once: that of another reader, read later, could be beyond the slowest one's.
        """
        numbers = self._numbers
        found = ((numbers[slot], slot) for slot in self._slots if not numbers[slot + _LEFT])
        return min(found, default=(self._read, self._slot))

    def _room(self) -> memoryview:
        """Return the part of the ring that can be written; nothing if it is full."""
        number, written = self._last(), self._numbers[_WRITTEN]
        begin, size = self._numbers[_BEGINS + number], RING_BYTES << number
        room = max(self._slowest()[0], begin) + size - written
        start = (written - begin) % size
        return self._rings[number][start : start + room]

    def give_way(self) -> None:
        """Wait until the slowest reader has read something, or the ring has room; find out why it reads nothing."""
        slowest, begin, check_at, warn_at = self._slowest(), time.monotonic(), _CHECK_SECONDS, WARN_SECONDS
        while (
            self._read
            == self._numbers[_WRITTEN]  # else another one has filled the ring, and this reader is the slowest now
            and slowest == self._slowest()
            and not self._room()
        ):
            time.sleep(_GIVE_WAY_SECONDS)
            seconds = time.monotonic() - begin
            if seconds > check_at:
                check_at += _CHECK_SECONDS
                self.check_not_left()
                self._drop_those_gone()
            if seconds > GROW_SECONDS and self._may_grow():
                self._grow(slowest[1])
            if seconds > warn_at:
                warn_at *= 2
                behind = f"{self._name(slowest[1])} reads nothing; the others wait for it"
                warn(f"{self._who}: blocked for {seconds:.0f} s, because {behind}")

    def _grow(self, slot: int) -> None:
        """Use the next larger ring for the bytes that follow."""
        fcntl.flock(self._memory, fcntl.LOCK_EX)
        try:
            number = self._last() + 1
            if self._read != self._numbers[_WRITTEN] or self._room():
                return
            if number < MOST_RINGS:
                self._numbers[_BEGINS + number] = self._read
                return
        finally:
            fcntl.flock(self._memory, fcntl.LOCK_UN)
        raise ChannelError(
            f"{self._name(self._slot)} has skipped so many damaged samples that it is {_place(MOST_RINGS):,} bytes ahead of"
            f" {self._name(slot)}, which reads nothing",
            channel=self._channel.name,
            remedy="repair the data, lower skip_damaged, or use input_mode: FastFile",
        )

    def _name(self, slot: int) -> str:
        name, rank, _ = self._readers[(slot - _READERS) // _EACH]
        return f"reader {name} of {rank}"

    def _drop_those_gone(self) -> None:
        """Stop waiting for the readers that have died or asked for a later epoch."""
        table = pipe_record.table_of(self._channel)
        for slot, (name, _, process) in zip(self._slots, self._readers, strict=True):
            now = table.get(name)
            if now is None or now.left or now.epoch != self._own.epoch or not is_running(*process):
                self._numbers[slot + _LEFT] = 1


def _place(number: int) -> int:
    """Return where a ring is, after the smaller ones."""
    return (RING_BYTES << number) - RING_BYTES
