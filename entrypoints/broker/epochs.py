"""Who gets what: the shares of the epochs that a broker has in hand. No sockets, no files, no clock.

An epoch is read by as many readers as the host has; which shares these are is known when the last of them has come.
Until then samples are kept undealt. A share that is over (finished before it was asked for, read to its end, closed early, or
left for a later epoch) gets nothing more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import add

from entrypoints.broker import wire
from entrypoints.order.sharding import Share
from entrypoints.sample import Sample, weight

_OBJECT = 400  # bytes that a sample, or a piece, takes in Python besides its content
_AT_ONCE = 64  # pieces offered to one system call; Linux takes 1024


class Outbox:
    """Bytes on their way to one reader."""

    def __init__(self) -> None:
        self.size = 0  # in memory, with what each piece takes besides its content; 0 when there is nothing
        self._pieces: deque[memoryview] = deque()

    def add(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Puts pieces behind those that are there."""
        for piece in pieces:
            self._pieces.append(memoryview(piece))
            self.size += len(piece) + _OBJECT

    def first(self) -> list[memoryview]:
        """What to send next."""
        return list(islice(self._pieces, _AT_ONCE))

    def sent(self, count: int) -> None:
        """Takes away the first `count` bytes."""
        self.size -= count
        while self._pieces and count >= len(self._pieces[0]):
            count -= len(self._pieces.popleft())
            self.size -= _OBJECT
        if count:
            self._pieces[0] = self._pieces[0][count:]

    def clear(self) -> None:
        """Forgets everything."""
        self.size = 0
        self._pieces.clear()


@dataclass
class Part:
    """One share of an epoch."""

    index: int
    outbox: Outbox = field(default_factory=Outbox)
    over: bool = False
    finished: bool = False  # nothing of it was left to read when its reader came

    def end(self) -> None:
        """Nobody wants any more of it."""
        self.over = True
        self.outbox.clear()


@dataclass
class Epoch:
    """An epoch's parts, by the index of their shares, and the samples that wait for the parts to be known."""

    number: int
    shares: Share | None = None  # the first reader's, which says how many there are; None until it has come
    block: tuple[int, int] | None = None  # samples of a share, and bytes, with which a block ends; 0 samples: no blocks
    parts: dict[int, Part] = field(default_factory=dict)
    given_up: str = ""  # why the readers that have not come are waited for no longer
    undealt: list[tuple[list[Sample], int]] = field(default_factory=list)
    undealt_size: int = 0
    since: float | None = None  # when a reader was first seen to wait for others, by the clock of the caller
    _dealt: int = 0  # samples
    _round: list[Sample] = field(default_factory=list)  # one for each share, of which some are still to come
    _rounds: int = 0  # of the block so far
    _weights: list[int] = field(default_factory=list)  # of the block's samples, by share
    _last: bytes | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is known who reads."""
        return bool(self.given_up) or (self.shares is not None and len(self.parts) >= self.shares.readers)

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody wants any more of it."""
        return self.is_settled and all(part.over for part in self.parts.values())

    @property
    def is_awaited(self) -> bool:
        """Whether a reader waits for samples."""
        return any(not part.over for part in self.parts.values())

    @property
    def is_kept_for_others(self) -> bool:
        """Whether all readers that have come so far had nothing left to read, and others are still to come."""
        return bool(self.parts) and not self.is_settled and all(part.finished for part in self.parts.values())

    def lacks(self, rank: int) -> bool:
        """Whether readers of this rank are still to come."""
        if self.shares is None or self.is_settled:
            return False
        mine = [index for index in self.parts if replace(self.shares, index=index).rank == rank]
        return len(mine) < self.shares.workers

    def takes(self, share: Share) -> bool:
        """Whether the share is one of those that are still to come."""
        return not self.is_settled and share.index not in self.parts and self._agrees(share)

    def _agrees(self, share: Share) -> bool:
        return self.shares is None or (share.count, share.readers) == (self.shares.count, self.shares.readers)

    @property
    def waiting_size(self) -> int:
        """Bytes that are kept for the part that has most of them."""
        return max([self.undealt_size, *(part.outbox.size for part in self.parts.values())])

    def join(self, share: Share, block: tuple[int, int] = (0, 0), *, finished: bool = False) -> Part | str:
        """The part of a reader that has come; or why it cannot have one. One that is `finished` gets nothing."""
        if self.given_up:
            return self.given_up
        if self.block not in (None, block):
            return f"one reader shuffles blocks of {block}, another of {self.block}; use one Reading on every rank"
        if self.shares is not None and not self._agrees(share):
            return (
                f"one reader takes itself for one of {share.readers} on this host and {share.count} in the job, another for one of "
                f"{self.shares.readers} and {self.shares.count}; use the same num_workers on every rank"
            )
        here = self.parts.get(share.index)
        if here is not None and here.finished and finished:
            return here
        if here is not None:
            return (
                f"share {share.index} of {share.count} has been taken by another reader: each rank and worker reads the channel "
                "once an epoch, and workers through ChannelDataset"
            )
        if self.is_settled:
            return f"{share.readers} readers have come already, of which this one is none"
        self.block = block
        part = self._add(share)
        if finished:
            part.finished = True
            part.end()
        self._deal_undealt()
        return part

    def leave(self, share: Share) -> None:
        """A reader has asked for a later epoch, and so wants no more of this one."""
        if share.index in self.parts and self._agrees(share):
            self.parts[share.index].end()
        elif self.takes(share):
            self._add(share).end()
            self._deal_undealt()

    def _add(self, share: Share) -> Part:
        self.shares = self.shares or share
        return self.parts.setdefault(share.index, Part(share.index))

    def deal(self, samples: list[Sample], size: int) -> None:
        """The epoch's next samples, of `size` bytes together: each into its part, or away if no part here is its."""
        if self._last is not None:
            return  # it was given up
        if self.is_settled:
            self._deal(samples, size)
        else:
            self.undealt.append((samples, size))
            self.undealt_size += size + _OBJECT * len(samples)

    def finish(self, last: bytes) -> None:
        """The stream is at its end; `last` is the frame that says so to every part, those to come too."""
        if self._last is not None:
            return
        self._last = last
        if self.is_settled:
            self._end_parts()

    def give_up(self, reason: str, last: bytes) -> None:
        """Wait no longer for readers that have not come: those that have get `last`, those that still come the reason."""
        self.given_up = reason
        self.undealt, self.undealt_size, self._last = [], 0, last
        self._end_parts()

    def _deal_undealt(self) -> None:
        """What has waited, if it is known now who reads."""
        if not self.is_settled:
            return
        undealt, self.undealt, self.undealt_size = self.undealt, [], 0
        for samples, size in undealt:
            self._deal(samples, size)
        if self._last is not None:
            self._end_parts()

    def _deal(self, samples: list[Sample], size: int) -> None:
        assert self.shares is not None
        if not self.block or not self.block[0]:
            self._give(samples, size, wire.SAMPLES)
            return
        # Where a block ends is a matter of the stream alone, and the same for all shares: after so many samples of each, or as
        # soon as one share's weigh so much. So rounds are dealt whole.
        count, (most, most_bytes) = self.shares.count, self.block
        self._weights = self._weights or [0] * count
        samples = [*self._round, *samples]
        weights = [*map(weight, samples)]
        begin = given = 0
        for end in range(count, len(samples) + 1, count):
            self._weights = [*map(add, self._weights, weights[begin:end])]
            self._rounds += 1
            begin = end
            if self._rounds == most or max(self._weights) >= most_bytes:
                self._give(samples[given:end], sum(weights[given:end]), wire.BLOCK)
                given, self._rounds, self._weights = end, 0, [0] * count
        self._give(samples[given:begin], sum(weights[given:begin]), wire.SAMPLES)
        self._round = samples[begin:]

    def _give(self, samples: list[Sample], size: int, kind: bytes) -> None:
        assert self.shares is not None
        count = self.shares.count
        for part in self.parts.values():
            mine = samples[(part.index - self._dealt) % count :: count]
            if mine and not part.over:
                part.outbox.add(wire.samples_frame(mine, size * len(mine) // len(samples), kind))
        self._dealt += len(samples)

    def _end_parts(self) -> None:
        assert self._last is not None
        self._give(self._round, sum(map(weight, self._round)), wire.SAMPLES)
        self._round = []
        for part in self.parts.values():
            if not part.over:
                part.outbox.add([self._last])
