"""One reader's samples of an epoch, in stages: rests of earlier readers, then objects, then blocks. Its position is a few numbers.

The order is a pure function of seed, epoch and reader: every process computes its own part, and a resumed job finds it again.
First all objects are shuffled, the same way for every reader, and dealt; then each reader's samples are shuffled in blocks. A
shuffle buffer would mix a little better, but depends on all earlier samples, while a block can be read again by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count as counting
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from sagemaker_channels.epoch.deals import FRESH, Deal, Place, Position, Rest, items, reach
from sagemaker_channels.epoch.reading import changed
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.meter import read_block
from sagemaker_channels.sample import Sample, weight
from sagemaker_channels.sources.silence import warn_once

if TYPE_CHECKING:
    from sagemaker_channels.epoch.objects import ObjectSource


class Positioned:
    """A reader's position: that of its next sample, or at the end the place that it has read up to (deals.py)."""

    source: Any

    def __init__(self, at: Position) -> None:
        self.ended = self._is_over = at is None  # There was nothing to read if it is over.
        known = at or FRESH
        self.block, self.given, self.part = (known.get(name, 0) for name in ("block", "given", "part"))
        self.size, self.end = known.get("size"), known.get("end")

    @property
    def at(self) -> Position:
        """The position of the next sample; None at the end."""
        return None if self.ended else self._position()

    @property
    def place(self) -> Position:
        """The position at the end, too, if this has read up to there."""
        return None if self._is_over else self._position()

    def _position(self) -> dict[str, Any]:
        position: dict[str, Any] = {"at": self._begin()}
        if self.block:
            position["block"] = self.block
        if self.given or (self.part and self.source.seed is not None):
            position |= {"given": self.given, "size": self.size}
        if (self.given or self.part) and self.end is not None:
            position["end"] = self.end
        if self.part:
            position["part"] = self.part
        return position

    def _begin(self) -> Place:
        """Return where the present block begins; unshuffled, the next sample."""
        raise NotImplementedError

    def finish(self) -> None:
        """Treat everything as read."""
        self.ended = self._is_over = True


class Reader(Positioned):
    """The samples of reader `index` of `count`, after the deals of `history`; with a limit, of its first items only."""

    def __init__(
        self,
        source: ObjectSource,
        history: Sequence[Deal],
        index: int,
        count: int,
        at: Position = FRESH,
        limit: int | None = None,
    ) -> None:
        self.source, self.history, self.index, self.count, self.limit = source, history, index, count, limit
        super().__init__(at)
        begin = (at or FRESH)["at"]
        self._read: Callable[[], Place] = lambda: begin  # the place after the last sample that was read
        self._begin: Callable[[], Place] = self._read
        # The item that is a rest, its reader, and where that began.
        self._old: tuple[int, Reader, Position] | None = None

    def partly(self, before: Position, part: int) -> Position:
        """Return the position between the parts of the last sample, of which so many were yielded; `before` was that before it."""
        if self._old is not None:  # Its rest has the part, in place of one that it had before.
            item, old, begun = self._old
            known, inner = (before or FRESH)["at"]
            return {"at": [item, old.partly(inner if known == item and inner else begun, part)]}
        if self.source.seed is None:
            return {**(before or FRESH), "end": self._read(), "part": part}
        return {"given": 0, **(before or FRESH), "size": self.size, "end": self.end, "part": part}

    def __iter__(self) -> Generator[Sample, None, None]:
        try:  # Errors are named here: one more generator around this one would cost 4-8 % for small records.
            if not self.ended:
                if self.part:
                    self.source.owed = self
                item, inner = self._begin()
                for rest in takewhile(lambda each: isinstance(each, Rest), self._own(item)):
                    yield from self._rest(item, rest, inner)
                    item, inner = item + 1, 0
                self._old = None
                objects = self._objects(item, inner)
                yield from objects if self.source.seed is None else self._blocks(objects)
            self.ended = True
        except (ChannelError, OSError) as error:
            raise self.source.named(error) from error.__cause__

    def _own(self, begin: int) -> Iterator[Any]:
        """The reader's items from one on."""
        first = self.index + begin * self.count
        dealt: Iterator[Any] = counting(first, self.count)
        if self.history:
            dealt = islice(items(counting(), self.history), first, None, self.count)
        return islice(dealt, None if self.limit is None else max(0, self.limit - begin))

    def _rest(self, item: int, rest: Rest, inner: Any) -> Iterator[Sample]:
        deal = self.history[rest.deal]
        begun = deal[rest.reader]
        old = Reader(self.source, self.history[: rest.deal], rest.reader, len(deal), inner or begun, reach(begun))
        self._old = item, old, inner or begun
        self._read = self._begin = lambda: [item, old.at] if old.at else [item + 1, 0]
        return iter(old)

    def _objects(self, item: int, inner: Any) -> Generator[Sample, None, None]:
        cursor, source = Cursor(*inner[:1] if inner else ()), self.source
        pin, number = inner[1] if inner else 0, -1

        def read() -> Place:
            return [item, [cursor.position, source.pin_of(number) if number >= 0 else pin] if cursor.position else 0]

        self._read = self._begin = read
        with closing(source.records(partial(self._own, item), cursor)) as opened:
            for number, samples in opened:
                if pin and source.pin_of(number) != pin:
                    raise self._changed(f"object {source.key!r} is not the one of")
                pin = 0
                yield from samples
                item += 1
                cursor.start = cursor.position = 0
        if cursor.start:
            raise self._changed("there are fewer objects than")
        if not item and self.count > 1 and not self.history:
            warn_once(
                f"{source.who}: there are fewer objects than the {self.count} parts into which they are divided, one for each"
                " reader (rank, worker, shard), so some have no samples; store the samples in more objects, or use fewer readers"
            )

    def _blocks(self, objects: Generator[Sample, None, None]) -> Generator[Sample, None, None]:
        changed = f"block {self.block} of the shuffled samples has another size or another end than"
        begin = self._begin()
        with closing(objects):
            while block := read_block(lambda: list(self._cut(objects))):
                end, self._begin = self._read(), self._at_block(begin)
                if self.size is not None and (self.size, self.end) != (len(block), end):
                    raise self._changed(changed)
                samples = block_order(block, self.source, len(self.history), self.index, self.count, self.block)
                block.clear()
                self.size, self.end = len(samples), end
                for number in range(self.given, len(samples)):
                    self.given = number + 1
                    if self.given == len(samples):
                        begin, self.block, self.given = end, self.block + 1, 0
                        self._begin = self._at_block(begin)
                    sample, samples[number] = samples[number], None  # frees memory for the next block
                    yield sample
                self.size = None
        if self.size is not None:
            raise self._changed(changed)

    @staticmethod
    def _at_block(begin: Place) -> Callable[[], Place]:
        return lambda: begin

    def _cut(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        size, most, most_bytes = 0, self.source.block, self.source.block_bytes
        for number, sample in enumerate(samples, 1):
            size += weight(sample)
            yield sample
            if number == most or size >= most_bytes:
                return

    @staticmethod
    def _changed(how: str) -> ChannelError:
        return changed(f"{how} when the state was taken")


def block_order(samples: Sequence[Any], source: Any, deals: int, index: int, count: int, block: int) -> list[Any]:
    """Return a block's samples in their order, which depends on the source's seed and epoch, the deal, the reader and the block."""
    seed = f"samples/{source.seed}/{source.epoch}/{f'{deals}/' if deals else ''}{index}/{count}/{block}"
    return random.Random(seed).sample(samples, len(samples))


class Turns:
    """Several readers as one, a sample of each in turn; the turns of those that have ended are skipped."""

    def __init__(self, readers: Sequence[Any], turn: int = 0) -> None:
        self.readers, self.turn = readers, turn % len(readers)
        self.last = readers[0]

    def __iter__(self) -> Generator[Sample, None, None]:
        iterators: list[Any] = [iter(reader) for reader in self.readers]
        try:
            while any(iterators):
                turn, self.turn = self.turn, (self.turn + 1) % len(iterators)
                sample = next(iterators[turn], None) if iterators[turn] else None
                if sample is None:
                    iterators[turn] = None
                else:
                    self.last = self.readers[turn]
                    yield sample
        finally:
            for iterator in iterators:
                if iterator is not None:
                    iterator.close()
