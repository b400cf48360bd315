"""One reader's samples of an epoch, in stages: rests of earlier readers, then objects, then blocks. Its position is a few numbers.

The order is a pure function of seed, epoch and reader: every process computes its own part, and a resumed job finds it again.
First all objects are shuffled, the same way for every reader, and dealt; then each reader's samples are shuffled in blocks. A
shuffle buffer would mix a little better, but depends on all earlier samples, while a block can be read again by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count as counting
from itertools import islice, takewhile
from typing import Any

from sagemaker_channels.epoch.deals import FRESH, Deal, Place, Position, Rest, items, place_of, reach
from sagemaker_channels.epoch.states import changed
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.meter import read_block
from sagemaker_channels.sample import Sample, weight
from sagemaker_channels.sources.silence import warn_once


class Positioned:
    """Reader `index` of `count` of a source, after the deals of `history`; its position is that of its next sample (deals.py)."""

    _read: Callable[[], Place]  # returns the place after the last sample that was read
    _begin: Callable[[], Place]  # returns where the present block begins; unshuffled, the next sample
    # The position before the sample that is yielded in parts, and how many of them were.
    _before: tuple[Position, int] | None = None

    def __init__(self, source: Any, history: Sequence[Deal], index: int, count: int, at: Position = FRESH) -> None:
        self.source, self.history, self.index, self.count = source, history, index, count
        self.ended = self._is_over = at is None  # There was nothing to read if it is over.
        known = at or FRESH
        self.block, self.given, self.part = (known.get(name, 0) for name in ("block", "given", "part"))
        self.size, self.end = known.get("size"), known.get("end")
        if self.part and not source.steps.are_several:
            raise ChannelError(
                "the state is in the middle of a sample of which a transform made several",
                remedy="use that transform, or restart the epoch",
            )

    @property
    def at(self) -> Position:
        """The position of the next sample; None at the end."""
        return None if self.ended else self._position()

    @property
    def place(self) -> Position:
        """The position at the end, too, if this has read up to there."""
        return None if self._is_over else self._position()

    def _position(self) -> dict[str, Any]:
        if self._before is None:
            return self._after()
        before, part = self._before
        if self.source.seed is None:
            return {**(before or FRESH), "end": self._read(), "part": part}
        return {"given": 0, **(before or FRESH), "size": self.size, "end": self.end, "part": part}

    def _after(self) -> dict[str, Any]:
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

    def __iter__(self) -> Generator[Sample, None, None]:
        try:  # Errors are named here: one more generator around this one would cost 4-8 % for small records.
            yield from self._samples()
            self.ended = not self.source.is_left
        except (ChannelError, OSError) as error:
            raise self.source.named(error) from error.__cause__

    def _samples(self) -> Iterator[Sample]:
        raise NotImplementedError

    def _made(self, samples: Iterator[Sample]) -> Iterator[Any]:
        """Yield what the source's filters and generator function make of samples; its other transforms run later."""
        steps = self.source.steps
        return self._in_parts(samples) if steps.are_several else self._kept(samples) if steps.filters else samples

    def _kept(self, samples: Iterator[Sample]) -> Generator[Sample, None, None]:
        for sample in samples:
            if self.source.steps.keeps(sample, self.source, self.place_of_last):
                yield sample
            elif self.source.is_left:
                return

    def _in_parts(self, samples: Iterator[Sample]) -> Generator[Any, None, None]:
        """Yield what the generator function makes of each sample; the position is exact also between two parts of one."""
        source, place, parts_of = self.source, self.place_of_last, self.source.steps.parts
        while not source.is_left:
            before = self.at
            if (sample := next(samples, None)) is None:
                return
            done, self.part = self.part, 0
            for number, part in enumerate(islice(parts_of(sample, source, place), done, None), done + 1):
                self._before = before, number
                yield part
            self._before = None

    def place_of_last(self) -> str:
        """Return, in words, where the last sample is."""
        return f"it ends at {place_of(self._after())}"

    def _blocks(self, cut: Callable[[], list[Sample]]) -> Generator[Sample, None, None]:
        """Yield the samples of each block that `cut` reads, shuffled."""
        begin, is_known = self._begin(), self.size is not None
        while block := read_block(cut):
            end, self._begin = self._read(), self._at_block(begin)
            if is_known and (self.size != len(block) or (self.end and not _is_at(self.end, end))):
                break
            is_known = False
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
        if is_known:
            raise _changed(f"block {self.block} of the shuffled samples has another size or another end than")

    @staticmethod
    def _at_block(begin: Place) -> Callable[[], Place]:
        return lambda: begin


class Reader(Positioned):
    """A reader of objects; with a limit, of its first items only."""

    def __init__(
        self,
        source: Any,
        history: Sequence[Deal],
        index: int,
        count: int,
        at: Position = FRESH,
        limit: int | None = None,
    ) -> None:
        super().__init__(source, history, index, count, at)
        self.limit, begin = limit, (at or FRESH)["at"]
        self._read = self._begin = lambda: begin

    def _samples(self) -> Iterator[Sample]:
        if self.ended:
            return
        item, inner = self._begin()
        for rest in takewhile(lambda each: isinstance(each, Rest), self._own(item)):
            yield from self._rest(item, rest, inner)
            item, inner = item + 1, 0
        with closing(self._objects(item, inner)) as objects:
            is_shuffled = self.source.seed is not None
            yield from self._made(self._blocks(lambda: list(self._cut(objects))) if is_shuffled else objects)

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
        self._read = self._begin = lambda: [item, old.at] if old.at else [item + 1, 0]
        return iter(old)

    def _objects(self, item: int, inner: Any) -> Generator[Sample, None, None]:
        cursor, source = Cursor(*inner[:1] if inner else ()), self.source
        number = -1
        pin: Any = inner[1] if inner else 0

        def read() -> Place:
            return [item, [cursor.position, source.pin_of(number) if number >= 0 else pin] if cursor.position else 0]

        self._read = self._begin = read
        with closing(source.records(partial(self._own, item), cursor)) as opened:
            for number, samples in opened:
                if pin and not _is_same(pin, source.pin_of(number)):
                    raise _changed(f"object {source.key!r} is not the one of")
                pin = 0
                yield from samples
                item += 1
                cursor.start = cursor.position = 0
        if cursor.start:
            raise _changed("there are fewer objects than")
        if not item and self.count > 1 and not self.history:
            warn_once(
                f"{source.who}: there are fewer objects than the {self.count} parts into which they are divided, one for each"
                " reader (rank, worker, shard), so some have no samples; store the samples in more objects, or use fewer readers"
            )

    def _cut(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        size, most, most_bytes = 0, self.source.block, self.source.block_bytes
        for number, sample in enumerate(samples, 1):
            size += weight(sample)
            yield sample
            if number == most or size >= most_bytes:
                return


def block_order(samples: Sequence[Any], source: Any, deals: int, index: int, count: int, block: int) -> list[Any]:
    """Return a block's samples in their order, which depends on the source's seed and epoch, the deal, the reader and the block."""
    seed = f"samples/{source.seed}/{source.epoch}/{f'{deals}/' if deals else ''}{index}/{count}/{block}"
    return random.Random(seed).sample(samples, len(samples))


def _is_at(end: Place, place: Place) -> bool:
    """Return whether a block that ended at one place ends at another."""
    inner, other = end[1], place[1]
    return end[0] == place[0] and (
        inner == other or (inner and other and inner[0] == other[0] and _is_same(inner[1], other[1]))
    )


def _is_same(pin: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether an object is the same, as far as both pins (sources/readers.py) know its content."""
    return pin[0] == other[0] and (pin[1] == other[1] or 0 in (pin[1], other[1]))


def _changed(how: str) -> ChannelError:
    return changed(f"{how} when the state was taken")
