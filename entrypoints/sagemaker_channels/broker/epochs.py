"""Which reader gets which samples: the shards of the epochs that a broker reads. No sockets, no files, no clock.

The shards of an epoch are known when the last reader of the host has connected. Until then samples are pending. A shard is
closed if it was finished before it was requested, is read to its end, is closed early, or if its reader asks for a later epoch;
a closed shard gets no more samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from operator import add

from sagemaker_channels.broker import protocol
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.order.work import Work
from sagemaker_channels.sample import Sample, weight

_OBJECT_BYTES = 400  # of memory that Python uses for a sample or a piece besides its content
_PIECES_PER_CALL = 64  # Linux accepts 1024 in one system call.


class Outbox:
    """Bytes that are to be sent to one reader."""

    def __init__(self) -> None:
        self.size = 0  # bytes in memory, with Python's overhead for each piece; 0 if there are none
        self._pieces: deque[memoryview] = deque()

    def add(self, pieces: Sequence[bytes | memoryview]) -> None:
        for piece in pieces:
            self._pieces.append(memoryview(piece))
            self.size += len(piece) + _OBJECT_BYTES

    def first(self) -> list[memoryview]:
        return list(islice(self._pieces, _PIECES_PER_CALL))

    def sent(self, count: int) -> None:
        """Remove the first `count` bytes."""
        self.size -= count
        while self._pieces and count >= len(self._pieces[0]):
            count -= len(self._pieces.popleft())
            self.size -= _OBJECT_BYTES
        if count:
            self._pieces[0] = self._pieces[0][count:]

    def clear(self) -> None:
        self.size = 0
        self._pieces.clear()


@dataclass
class Assignment:
    """The samples of one shard that its reader has not received yet."""

    index: int
    outbox: Outbox = field(default_factory=Outbox)
    closed: bool = False
    finished: bool = False  # Its reader had nothing left to read when it connected.

    def close(self) -> None:
        """Drop the shard's samples and accept no more."""
        self.closed = True
        self.outbox.clear()


@dataclass
class Epoch:
    """The shards of an epoch by their index, and the samples that are pending until all shards are known."""

    number: int
    layout: Shard | None = None  # the first reader's shard, which states how many there are
    # Samples of a shard, and bytes, that end a block; 0 samples: there are no blocks.
    block: tuple[int, int] | None = None
    left: str | None = None  # the work that the shards are of, as text (order/work.py)
    shards: dict[int, Assignment] = field(default_factory=dict)
    given_up: str = ""  # why readers that have not connected are not waited for any more
    pending: list[tuple[list[Sample], int]] = field(default_factory=list)
    pending_size: int = 0
    since: float | None = None  # when a reader began to wait for others, by the caller's clock
    _assigned: int = 0  # samples
    _round: list[Sample] = field(default_factory=list)  # an incomplete round: one sample for each shard
    _rounds: int = 0  # of the present block
    _weights: list[int] = field(default_factory=list)  # bytes of the present block, by shard
    _last: bytes | None = None
    _is_left: Iterator[int] | None = None  # whether each further sample is left; None if all are

    @property
    def is_settled(self) -> bool:
        """Whether all readers are known."""
        return bool(self.given_up) or (self.layout is not None and len(self.shards) >= self.layout.readers)

    @property
    def is_abandoned(self) -> bool:
        """Whether no reader wants more of the epoch."""
        return self.is_settled and all(shard.closed for shard in self.shards.values())

    @property
    def is_awaited(self) -> bool:
        """Whether a reader waits for samples."""
        return any(not shard.closed for shard in self.shards.values())

    @property
    def is_kept_for_missing(self) -> bool:
        """Whether every reader that has connected was finished, and others are missing."""
        return bool(self.shards) and not self.is_settled and all(shard.finished for shard in self.shards.values())

    def lacks(self, rank: int) -> bool:
        if self.layout is None or self.is_settled:
            return False
        connected = [index for index in self.shards if replace(self.layout, index=index).rank == rank]
        return len(connected) < self.layout.workers

    def expects(self, shard: Shard) -> bool:
        return not self.is_settled and shard.index not in self.shards and self._agrees(shard)

    def _agrees(self, shard: Shard) -> bool:
        return self.layout is None or (shard.count, shard.readers) == (self.layout.count, self.layout.readers)

    @property
    def waiting_size(self) -> int:
        """Bytes in memory for the shard that has most of them."""
        return max([self.pending_size, *(shard.outbox.size for shard in self.shards.values())])

    def join(self, request: protocol.Request) -> Assignment | str:
        """Add the shard of a reader that has connected.

        Returns:
            The shard's samples, or why the reader cannot have the shard.
        """
        shard, block = request.shard, (request.block, request.block_bytes)
        if self.given_up:
            return self.given_up
        if self.block not in (None, block):
            return f"one reader shuffles blocks of {block}, another of {self.block}; use one Reading on every rank"
        if self.left not in (None, request.left):
            return "one reader resumes at a state that another does not; load one merged state in all ranks and workers"
        if self.layout is not None and not self._agrees(shard):
            return (
                f"one reader expects {shard.readers} readers on this host and {shard.count} in the job, another "
                f"{self.layout.readers} and {self.layout.count}; use the same num_workers on every rank"
            )
        present = self.shards.get(shard.index)
        if present is not None and present.finished and request.finished:
            return present
        if present is not None:
            return (
                f"shard {shard.index} of {shard.count} is already assigned to another reader; read the channel once per epoch in "
                "each rank and worker, and use ChannelDataset in workers"
            )
        if self.is_settled:
            return f"all {shard.readers} readers have connected already, and this is not one of them"
        if self.left is None and request.left:
            self._is_left = Work.decoded(request.left).selectors()
        self.block, self.left = block, request.left
        assignment = self._add(shard)
        if request.finished:
            assignment.finished = True
            assignment.close()
        self._assign_pending()
        return assignment

    def leave(self, shard: Shard) -> None:
        """Close a shard whose reader has asked for a later epoch."""
        if shard.index in self.shards and self._agrees(shard):
            self.shards[shard.index].close()
        elif self.expects(shard):
            self._add(shard).close()
            self._assign_pending()

    def _add(self, shard: Shard) -> Assignment:
        self.layout = self.layout or shard
        return self.shards.setdefault(shard.index, Assignment(shard.index))

    def assign(self, samples: list[Sample], size: int) -> None:
        """Assign the next samples of the stream, of so many bytes; samples of shards that are not read here are dropped."""
        if self._last is None:  # Otherwise the epoch was given up.
            self.pending.append((samples, size))
            self.pending_size += size + _OBJECT_BYTES * len(samples)
            self._assign_pending()

    def finish(self, last: bytes) -> None:
        """End the epoch with the frame `last` for every shard, those that connect later too."""
        if self._last is None:
            self._last = last
            self._assign_pending()

    def give_up(self, reason: str, last: bytes) -> None:
        """Stop waiting for missing readers: those that have connected get the frame `last`, later ones the reason."""
        self.given_up = reason
        self.pending, self.pending_size, self._last = [], 0, last
        self._end_shards()

    def _assign_pending(self) -> None:
        if not self.is_settled:
            return
        pending, self.pending, self.pending_size = self.pending, [], 0
        for samples, size in pending:
            left = samples if self._is_left is None else [*compress(samples, self._is_left)]
            self._assign(left, size * len(left) // max(1, len(samples)))
        if self._last is not None:
            self._end_shards()

    def _assign(self, samples: list[Sample], size: int) -> None:
        assert self.layout is not None
        if not self.block or not self.block[0]:
            self._send(samples, size, protocol.SAMPLES)
            return
        # The end of a block depends on the stream alone and is the same for all shards: after a number of samples of each, or as
        # soon as one shard's samples reach the byte limit. So only complete rounds are assigned.
        count, (most, most_bytes) = self.layout.count, self.block
        self._weights = self._weights or [0] * count
        samples = [*self._round, *samples]
        weights = [*map(weight, samples)]
        begin = sent = 0
        for end in range(count, len(samples) + 1, count):
            self._weights = [*map(add, self._weights, weights[begin:end])]
            self._rounds += 1
            begin = end
            if self._rounds == most or max(self._weights) >= most_bytes:
                self._send(samples[sent:end], sum(weights[sent:end]), protocol.BLOCK)
                sent, self._rounds, self._weights = end, 0, [0] * count
        self._send(samples[sent:begin], sum(weights[sent:begin]), protocol.SAMPLES)
        self._round = samples[begin:]

    def _send(self, samples: list[Sample], size: int, kind: bytes) -> None:
        assert self.layout is not None
        count = self.layout.count
        for shard in self.shards.values():
            chosen = samples[(shard.index - self._assigned) % count :: count]
            if chosen and not shard.closed:
                shard.outbox.add(protocol.samples_frame(chosen, size * len(chosen) // len(samples), kind))
        self._assigned += len(samples)

    def _end_shards(self) -> None:
        assert self._last is not None
        self._send(self._round, sum(map(weight, self._round)), protocol.SAMPLES)
        self._round = []
        for shard in self.shards.values():
            if not shard.closed:
                shard.outbox.add([self._last])
