"""A Pipe's samples: one stream that cannot go back, so its items are samples, and the deals are filters of the stream.

Every reader of a host gets the whole stream (sources/tee.py) and keeps its own samples, as every host does whose objects are the
same. Blocks end at the same sample for all readers, so that none waits for samples that another does not take.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice

from sagemaker_channels.epoch.deals import FRESH, Deal, Place, Position, without
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.reader import Positioned, block_order
from sagemaker_channels.epoch.reading import Reading, Source, changed
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import Format, recordio
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.damage import Damage
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.meter import read_block
from sagemaker_channels.sample import Sample, weight
from sagemaker_channels.sources import tee


class StreamSource(Source):
    """The stream of a Pipe's epoch, of which so many readers of this host keep their samples."""

    def __init__(
        self, channel: Channel, epoch: int, form: Format, reading: Reading, damage: Damage, shard: Shard
    ) -> None:
        super().__init__(channel, epoch, form, reading, damage, shard.host)
        self.readers = shard.readers

    def reader(self, history: Sequence[Deal], index: int, count: int, at: Position) -> StreamReader:
        return StreamReader(self, *self.of_host(history, index, count), at)

    def samples(self, index: int, turns: tuple[int, int]) -> Generator[Sample, None, None]:
        """Yield all samples to one of the readers; those whose turn it is not may be without content."""
        # After damage, the readers must agree on the number of samples. So if it is skipped, each of them checks all.
        cursor = Cursor(0, self.damage.skip, (0, 1)) if self.damage.most else Cursor(0, None, turns)
        stream = tee.open_stream(
            self.channel, self.epoch, self.readers, reader=index, may_grow=lambda: self.damage.has_skipped
        )
        assert stream is not None
        with closing(stream):
            if self.channel.record_wrapper == "RecordIO":  # Each record is one whole object, in the channel's format.
                yield from recordio.unwrapped(stream, self.form.split, cursor)
            else:
                yield from self.form.split(stream, None, cursor)

    def count(self, index: int, count: int) -> int:
        raise TypeError(f"{self.who}: the number of samples is unknown until they are read: a Pipe is one stream")


class StreamReader(Positioned):
    """Every count-th sample of what the deals of `history` have left of the stream; an item is a sample."""

    def __init__(
        self, source: StreamSource, history: Sequence[Deal], index: int, count: int, at: Position = FRESH
    ) -> None:
        self.source, self.history, self.index, self.count = source, history, index, count
        super().__init__(at)
        self.item = (at or FRESH)["at"][0]  # shuffled, where the present block begins

    def _begin(self) -> Place:
        return [self.item, 0]

    def partly(self, before: Position, part: int) -> Position:
        block = {} if self.source.seed is None else {"given": 0, "size": self.size}
        return {**block, **(before or FRESH), "part": part}

    def __iter__(self) -> Generator[Sample, None, None]:
        try:
            if self.ended:
                if self.source.readers > 1:  # The host's other readers must not wait for this one.
                    source = self.source
                    tee.open_stream(source.channel, source.epoch, source.readers, finished=True, reader=self.index)
                return
            if self.part:
                self.source.owed = self
            is_every = not self.history and self.source.seed is None  # Otherwise the sizes of all samples are needed.
            turns = (self.index, self.count) if is_every else (0, 1)
            with closing(self.source.samples(self.index, turns)) as samples:
                left = self._left(samples)
                if self.source.seed is not None:
                    yield from self._blocks(left)
                else:
                    yield from self._in_order(left)
            self.ended = True
        except (ChannelError, OSError) as error:
            raise self.source.named(error) from error.__cause__

    def _left(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Yield what the earlier deals have left: each reader has taken its first items, and those given of its begun block."""
        for number, deal in enumerate(self.history):
            if any(position and "part" in position for position in deal):
                raise ChannelError(
                    "the state is in the middle of a sample of which the transform makes several, and a Pipe is divided again:"
                    " use as many readers as before, or restart the epoch"
                )
            given = []
            for reader, position in enumerate(deal):
                if position is not None and position.get("given"):
                    order = block_order(
                        range(position["size"]), self.source, number, reader, len(deal), position.get("block", 0)
                    )
                    given += [reader + (position["at"][0] + place) * len(deal) for place in order[: position["given"]]]
            samples = without(samples, [None if each is None else each["at"][0] for each in deal], given)
        return samples

    def _in_order(self, samples: Iterator[Sample]) -> Generator[Sample, None, None]:
        before = sum(1 for _ in islice(samples, self.item * self.count))
        own = len(range(self.index, before, self.count))
        if own < self.item:
            raise self._fewer(own)
        if self.count == 1:
            for sample in samples:
                self.item += 1
                yield sample
            return
        # A round is read before its sample is yielded: a rank that waits for this one may need the rest of it from the tee.
        while len(one := list(islice(samples, self.count))) > self.index:
            sample = one[self.index]
            one.clear()
            self.item += 1
            yield sample
            del sample

    def _fewer(self, found: int) -> ChannelError:
        return changed(f"the state says that {self.item:,} samples of this reader were begun, but there are {found:,}")

    def _blocks(self, samples: Iterator[Sample]) -> Generator[Sample, None, None]:
        done = 0  # own samples of earlier blocks
        while block := read_block(lambda: self._block(samples)):
            if done < self.item:
                done += len(block)
                continue
            if self.size and self.size != len(block):
                raise changed(
                    f"block {self.block} of the shuffled samples has another size than when the state was taken"
                )
            order = block_order(block, self.source, len(self.history), self.index, self.count, self.block)
            block.clear()
            self.size, item = len(order), self.item
            for number in range(self.given, len(order)):
                self.given = number + 1
                if self.given == len(order):
                    self.item, self.block, self.given = item + len(order), self.block + 1, 0
                sample, order[number] = order[number], None
                yield sample
            self.size, done = 0, self.item
        if done < self.item:
            raise self._fewer(done)

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
        return own
