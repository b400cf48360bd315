"""The work of an epoch: what is left of it, and how it is divided among any number of readers. Pure functions of numbers.

A fresh epoch's work is its objects in the epoch's order, by their numbers (in a Pipe: its samples). Shard `index` of `count` has
every `count`-th item of it. A reader's position is a few numbers that count its own shard's items, so it costs nothing to take.

With as many shards as before, each reader continues at its own position, in the same order. With any other number, the positions
of all shards are folded into the work that is left (`Work.after`): first the pieces that were begun, which are the rests of objects
and of shuffled blocks, then all numbers that are not done. That is divided again in the same way, and so on.

What is done: all numbers below `floor`, and of those from there on the ones that are not `left`: a byte each, in patterns that
repeat, so that a million objects take little of a state. `tail` repeats for all further numbers: a shard that has ended has
nothing left there.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, compress, count, cycle, islice, pairwise, repeat
from typing import NamedTuple, TypeVar

T = TypeVar("T")
_TEXT = bytes.maketrans(b"\0\1", b"01")
_BYTES = bytes.maketrans(b"01", b"\0\1")


class Position(NamedTuple):
    """A reader's position in its shard. All numbers are JSON's; positions in objects can be negative (records/cursor.py)."""

    item: int = 0  # of the shard, from 0: the object that is being read, or in which the present block begins
    position: int = 0  # in that; 0 if its reading has not begun
    block: int = 0  # the number of the block
    given: int = 0  # samples of the block that were yielded
    samples: int = 0  # of the block; 0 unless some were yielded
    end: int = 0  # the item in which the block ends
    end_position: int = 0  # in that
    pin: int = 0  # the version of the object of `item`, if `position` is in its middle; 0 if unknown
    end_pin: int = 0  # that of `end`

    @property
    def reach(self) -> int:
        """The number of the shard's items that are done or begun."""
        item, position = (self.end, self.end_position) if self.given else (self.item, self.position)
        return item + (position != 0)


class Part(NamedTuple):
    """An object from a position on."""

    number: int
    position: int
    pin: int = 0  # the version that the object had; 0 if unknown


class Piece(NamedTuple):
    """Work that was begun: the rest of one object, or of a shuffled block of samples of several."""

    parts: Sequence[Part]
    seed: str = ""  # of the block's order; empty for the rest of an object
    samples: int = 0  # of the block, from the first part's position on
    given: int = 0  # of these, in the block's order, that were yielded


@dataclass(frozen=True)
class Work:
    """What is left of an epoch."""

    floor: int = 0
    left: bytes = b""  # for each number from `floor` on: 1 if it is left, else 0
    tail: bytes = b"\1"
    pieces: tuple[Piece, ...] = ()

    def pieces_of(self, index: int, shards: int) -> tuple[Piece, ...]:
        """Return the pieces of a shard: its first items."""
        return self.pieces[index::shards]

    def of(self, items: Iterable[T], index: int, shards: int, begin: int = 0) -> Iterator[T]:
        """Return a shard's whole items, from its `begin`-th item on; `items` has one for each number."""
        own = len(self.pieces_of(index, shards))
        first = index + max(begin, own) * shards - len(self.pieces)
        return islice(self._left_of(items), first, None, shards)

    def _left_of(self, items: Iterable[T]) -> Iterator[T]:
        return islice(items, self.floor, None) if self._is_plain else compress(items, self.selectors())

    def selectors(self) -> Iterator[int]:
        """Yield whether each number is left: 1 or 0, without an end."""
        return chain(repeat(0, self.floor), self.left, cycle(self.tail))

    @property
    def _is_plain(self) -> bool:
        return not self.left and self.tail == b"\1"

    def after(
        self, shards: int, positions: Mapping[int, Position], ended: Iterable[int], seed: Callable[..., str]
    ) -> Work:
        """Return the work that is left after each shard has reached its position.

        Args:
            shards: The number of shards.
            positions: The position of each shard.
            ended: The shards of which nothing is left.
            seed: Returns the seed of a block's order from the numbers of its shard and of the block.
        """
        return _Fold(self, shards, positions, set(ended)).work(seed)

    def after_samples(
        self,
        shards: int,
        positions: Mapping[int, Position],
        ended: Iterable[int],
        order: Callable[[int, int, int], Sequence[int]],
    ) -> Work:
        """Return the same for a Pipe, in which each item is one sample, so that those that were yielded can be named.

        Args:
            shards: The number of shards.
            positions: The position of each shard.
            ended: The shards of which nothing is left.
            order: Returns the order of a block's samples from the numbers of its shard, of the block, and of its samples.
        """
        begun = {index: Position(each.item) for index, each in positions.items()}
        fold = _Fold(self, shards, begun, set(ended))
        for index, each in positions.items():
            if each.given and index not in fold.ended:
                yielded = order(index, each.block, each.samples)[: each.given]
                fold.more += [index + (each.item + place) * shards for place in yielded]
        return fold.work(lambda *_: "")

    def encoded(self) -> str:
        """Return this as text for a state; empty for a fresh epoch."""
        if self == Work():
            return ""
        pieces = []
        for piece in self.pieces:
            numbers, positions, pins = zip(*piece.parts, strict=True)
            pieces.append(
                [numbers[0], [after - before for before, after in pairwise(numbers)], positions, pins, *piece[1:]]
            )
        what = [self.floor, self.left.translate(_TEXT).decode(), self.tail.translate(_TEXT).decode(), pieces]
        return base64.b64encode(zlib.compress(json.dumps(what, separators=(",", ":")).encode())).decode()

    @staticmethod
    def decoded(text: str) -> Work:
        """Return the work that `encoded` made the text of. Raises ValueError if it is something else."""
        if not text:
            return Work()
        try:
            floor, left, tail, pieces = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
            return Work(
                floor,
                left.encode().translate(_BYTES),
                tail.encode().translate(_BYTES),
                tuple(
                    Piece(tuple(map(Part, accumulate(deltas, initial=first), positions, pins)), *rest)
                    for first, deltas, positions, pins, *rest in pieces
                ),
            )
        except (zlib.error, TypeError, AttributeError) as error:
            raise ValueError("the work that is left is damaged") from error


class _Fold:
    """One step from the work of some shards, and their positions, to the work that is left."""

    def __init__(self, work: Work, shards: int, positions: Mapping[int, Position], ended: set[int]) -> None:
        self._work, self._shards, self.ended = work, shards, ended
        self._begun = {index: each for index, each in sorted(positions.items()) if index not in ended}
        self.more: list[int] = []  # further items that are done

    def work(self, seed: Callable[..., str]) -> Work:
        pieces: list[Piece] = []
        for index, each in self._begun.items():
            pieces += self._begun_pieces(index, each, seed)
        pieces += [piece for item, piece in enumerate(self._work.pieces) if self._is_untouched(item)]
        floor, left, tail = self._numbers_left()
        # Blocks first: in a shard none may begin in the middle of a block that is made of the rests of objects.
        return Work(floor, left, tail, tuple(sorted(pieces, key=lambda piece: not piece.seed)))

    def _begun_pieces(self, index: int, at: Position, seed: Callable[..., str]) -> Iterator[Piece]:
        """Yield what is left of the items that a shard has begun and not ended."""
        if not at.given:
            if at.position:
                yield Piece((Part(self._parts(index, at.item)[0].number, at.position, at.pin),))
            return
        first = self._item(index, at.item)
        if first < len(self._work.pieces) and self._work.pieces[first].seed:
            yield self._work.pieces[first]._replace(given=at.given)
            return
        parts = [part for item in range(at.item, at.reach) for part in self._parts(index, item)]
        if at.position:
            parts[0] = Part(parts[0].number, at.position, at.pin)
        yield Piece(tuple(parts), seed(index, at.block), at.samples, at.given)
        if at.end_position:
            yield Piece((Part(parts[-1].number, at.end_position, at.end_pin),))

    def _is_untouched(self, item: int) -> bool:
        of_shard, index = divmod(item, self._shards)
        return index not in self.ended and of_shard >= (self._begun[index].reach if index in self._begun else 0)

    def _parts(self, index: int, item: int) -> Sequence[Part]:
        number = self._item(index, item)
        pieces = self._work.pieces
        return pieces[number].parts if number < len(pieces) else (Part(self._numbers[number - self._skipped], 0),)

    def _item(self, index: int, item: int) -> int:
        """The number of a shard's item among those of all shards."""
        return index + item * self._shards

    @cached_property
    def _skipped(self) -> int:
        """The number of first items, pieces too, that are known to be done without looking at them."""
        pieces = len(self._work.pieces)
        if not self._work._is_plain:
            return pieces
        return max(pieces, min((self._item(index, each.item) for index, each in self._begun.items()), default=0))

    @cached_property
    def _numbers(self) -> array[int]:
        """The numbers of the whole items from `_skipped` on, as far as a shard has begun them."""
        tops = [self._item(index, each.reach - 1) + 1 for index, each in self._begun.items() if each.reach]
        top = max([*tops, *(item + 1 for item in self.more), self._skipped])
        begin = self._skipped - len(self._work.pieces)
        return array("q", islice(self._work._left_of(count()), begin, top - len(self._work.pieces)))

    @cached_property
    def _done(self) -> bytearray:
        """Whether each item from `_skipped` on is done or begun, as many as `_base` has left."""
        items = bytearray(sum(self._base))

        def mark(index: int, end: int) -> None:
            places = slice((index - self._skipped) % self._shards, max(0, end - self._skipped), self._shards)
            items[places] = b"\1" * len(items[places])

        for index in self.ended:
            mark(index, self._skipped + len(items))
        for index, each in self._begun.items():
            mark(index, self._item(index, each.reach))
        for item in self.more:
            items[item - self._skipped] = 1
        return items

    @cached_property
    def _floor(self) -> int:
        return self._work.floor + self._skipped - len(self._work.pieces) if self._work._is_plain else self._work.floor

    @cached_property
    def _length(self) -> int:
        """How many numbers from the floor on are known one by one; the tail begins after them."""
        last = self._numbers[-1] + 1 if self._numbers else 0
        return max(last - self._floor, len(self._work.left))

    @cached_property
    def _base(self) -> bytes:
        """Whether each number from the floor on was left before, with one period of the tail if shards have ended."""
        period = len(self._work.tail) * self._shards if self.ended else 0
        return bytes(islice(chain(self._work.left, cycle(self._work.tail)), self._length + period))

    def _numbers_left(self) -> tuple[int, bytes, bytes]:
        left = bytearray(self._base)
        for place in compress(compress(range(len(left)), self._base), self._done):
            left[place] = 0
        if self.ended:
            tail = bytes(left[self._length :])
        else:
            phase = (self._length - len(self._work.left)) % len(self._work.tail)
            tail = self._work.tail[phase:] + self._work.tail[:phase]
        del left[self._length :]
        begin = left.find(1) if 1 in left else len(left)
        return self._floor + begin, bytes(left[begin:]), tail
