"""A reader of a Pipe.

A Pipe is one stream that cannot go back, so its items are samples, and the deals (deals.py) are filters of the stream. Every reader
of a host gets the whole stream (sources/tee.py) and keeps its own samples. Blocks end at the same sample for all readers, so that
none waits for samples that another does not take.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from sagemaker_channels.epoch.deals import FRESH, Deal, Position, without
from sagemaker_channels.epoch.reader import Positioned, block_order
from sagemaker_channels.epoch.states import changed
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sample import Sample, weight
from sagemaker_channels.sources import tee


class StreamReader(Positioned):
    """A reader of a Pipe, which keeps every count-th sample of what the deals of `history` have left of it."""

    def __init__(self, source: Any, history: Sequence[Deal], index: int, count: int, at: Position = FRESH) -> None:
        super().__init__(source, history, index, count, at)
        self._taken = (at or FRESH)["at"][0]  # of its samples
        self._read = self._begin = lambda: [self._taken, 0]

    def _samples(self) -> Iterator[Sample]:
        source = self.source
        if self.ended:
            if source.readers > 1:  # The host's other readers must not wait for this one.
                tee.open_stream(source.channel, source.epoch, source.readers, finished=True, reader=self.index)
            return
        is_every = not self.history and source.seed is None  # Otherwise the sizes of all samples are needed.
        turns = (self.index, self.count) if is_every else (0, 1)
        with closing(source.samples(self.index, turns)) as samples:
            left = self._left(samples)
            before = sum(1 for _ in islice(left, self._taken * self.count))
            if (found := len(range(self.index, before, self.count))) < self._taken:
                raise changed(
                    f"the state says that {self._taken:,} samples of this reader were begun, but there are {found:,}"
                )
            is_shuffled = source.seed is not None
            yield from self._made(self._blocks(lambda: self._block(left)) if is_shuffled else self._in_order(left))

    def _left(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Yield what the earlier deals have left: each reader has taken its first items, and those given of its begun block."""
        for number, deal in enumerate(self.history):
            if any(position and "part" in position for position in deal):
                raise ChannelError(
                    "the state is in the middle of a sample of which the transform makes several, and a Pipe is divided again",
                    remedy="use as many readers as before, or restart the epoch",
                )
            given = []
            for reader, position in enumerate(deal):
                if position is not None and position.get("given"):
                    of_block = number, reader, len(deal), position.get("block", 0)
                    order = block_order(range(position["size"]), self.source, *of_block)
                    given += [reader + (position["at"][0] + place) * len(deal) for place in order[: position["given"]]]
            samples = without(samples, [None if each is None else each["at"][0] for each in deal], given)
        return samples

    def _in_order(self, samples: Iterator[Sample]) -> Generator[Sample, None, None]:
        if self.count == 1:
            for sample in samples:
                self._taken += 1
                yield sample
            return
        # A round is read before its sample is yielded: a rank that waits for this one may need the rest of it from the tee.
        index, count, source = self.index, self.count, self.source
        while len(one := list(islice(samples, count))) > index:
            if source.stream.left[0]:  # as in `check`, whose call for each sample would be noticeable
                source.check()
            sample = one[index]
            one.clear()
            self._taken += 1
            yield sample
            del sample

    def _block(self, samples: Iterator[Sample]) -> list[Sample]:
        """Return this reader's samples of the next block: of so many rounds, or of so many bytes of the reader that has most."""
        own: list[Sample] = []
        rounds, sizes = 0, [0] * self.count
        while rounds < self.source.block and max(sizes) < self.source.block_bytes:
            one = list(islice(samples, self.count))
            own += one[self.index : self.index + 1]
            if len(one) < self.count:
                break
            rounds, sizes = rounds + 1, [size + weight(sample) for size, sample in zip(sizes, one, strict=True)]
        self.source.check()
        self._taken += len(own)
        return own
