"""The work of an epoch: divided, interrupted and divided again, each sample belongs to one reader once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagemaker_channels.order.work import Part, Piece, Position, Work


def numbers_of(work: Work, index: int, shards: int, most: int = 12) -> list[int]:
    return list(islice(work.of(count(), index, shards), most))


def seed_of(index: int, block: int) -> str:
    return f"{index}/{block}"


FRESH = Work()
TABLE: list[tuple[str, Work, int, dict[int, Position], set[int], Work]] = [
    ("nothing is begun", FRESH, 2, {0: Position(), 1: Position()}, set(), FRESH),
    ("all are equally far", FRESH, 2, {0: Position(3), 1: Position(3)}, set(), Work(6)),
    ("one is ahead", FRESH, 2, {0: Position(1), 1: Position(3)}, set(), Work(2, b"\1\0\1\0")),
    (
        "in the middle of an object",
        FRESH,
        2,
        {0: Position(1), 1: Position(1, 77)},
        set(),
        Work(2, b"\1\0", b"\1", (Piece((Part(3, 77),)),)),
    ),
    ("one has ended", FRESH, 2, {0: Position(2), 1: Position(5)}, {1}, Work(4, b"", b"\1\0")),
    (
        "in the middle of a block of three objects",
        FRESH,
        1,
        {0: Position(4, -9, 2, 5, 10, 6, 1)},
        set(),
        Work(7, b"", b"\1", (Piece((Part(4, -9), Part(5, 0), Part(6, 0)), "0/2", 10, 5), Piece((Part(6, 1),)))),
    ),
    (
        "in the middle of a rest",
        Work(4, pieces=(Piece((Part(2, 5),)), Piece((Part(3, 6),)))),
        1,
        {0: Position(1, 8)},
        set(),
        Work(4, pieces=(Piece((Part(3, 8),)),)),
    ),
    (
        "in the middle of the rest of a block",
        Work(4, pieces=(Piece((Part(2, 5), Part(3, 0)), "x", 9, 2),)),
        1,
        {0: Position(0, 0, 0, 7, 9, 1)},
        set(),
        Work(4, pieces=(Piece((Part(2, 5), Part(3, 0)), "x", 9, 7),)),
    ),
    ("pieces are done", Work(4, pieces=(Piece((Part(2, 5),)),)), 1, {0: Position(3)}, set(), Work(6)),
]


@pytest.mark.parametrize(
    ("work", "shards", "at", "ended", "left"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_work_after_positions_is_what_is_left(
    work: Work, shards: int, at: dict[int, Position], ended: set[int], left: Work
) -> None:
    assert work.after(shards, at, ended, seed_of) == left
    assert Work.decoded(left.encoded()) == left


def test_work_is_divided_by_every_count_th_item() -> None:
    work = Work(2, b"\1\0\1", b"\1", (Piece((Part(0, 5),)), Piece((Part(1, 5),))))
    assert work.pieces_of(0, 3) == work.pieces[:1]
    assert work.pieces_of(2, 3) == ()
    assert numbers_of(work, 0, 1, 4) == [2, 4, 5, 6]
    assert [numbers_of(work, index, 3, 3) for index in range(3)] == [[4, 7, 10], [5, 8, 11], [2, 6, 9]]
    assert list(islice(work.of(count(), 2, 3, 1), 2)) == [6, 9]


@pytest.mark.parametrize("text", ["x", "eJw=", "AAAA", "e30="])
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Work.decoded(text)


class Unit(NamedTuple):
    """A sample of a simulated reading: of object `number`, the `place`-th."""

    number: int
    place: int


class Reader:
    """Reads a shard of objects of some samples in each, as Samples does, with the simplest code that can."""

    def __init__(self, work: Work, index: int, shards: int, sizes: list[int], block: int) -> None:
        self.sizes, self.block = sizes, block
        own = work.pieces_of(index, shards)
        whole = work.of(range(len(sizes)), index, shards)
        self.items = [*own, *(Piece((Part(number, 0),)) for number in whole)]
        self.at, self.ended, self.index = Position(), False, index
        self.samples = self._samples()

    def _blocks(self) -> Iterator[tuple[list[tuple[Unit, tuple[int, int]]], Piece | None]]:
        """Yield the blocks: samples with the position after each, and the piece that one is."""
        block: list[tuple[Unit, tuple[int, int]]] = []
        for item, piece in enumerate(self.items):
            if piece.seed:
                units = [u for part in piece.parts for u in self._units(part)][: piece.samples]
                yield [(unit, (item + 1, 0)) for unit in units], piece
                continue
            for unit in self._units(piece.parts[0]):
                block.append((unit, (item, unit.place + 1)))
                if len(block) == self.block:
                    yield block, None
                    block = []
        if block:
            yield block, None

    def _units(self, part: Part) -> list[Unit]:
        return [Unit(part.number, place) for place in range(part.position, self.sizes[part.number])]

    def _samples(self) -> Iterator[Unit]:
        begun = (0, 0)
        for number, (block, piece) in enumerate(self._blocks()):
            after = block[-1][1]
            seed = piece.seed if piece else seed_of(self.index, number)
            shuffled = random.Random(seed).sample([unit for unit, _ in block], len(block))
            for yielded, unit in enumerate(shuffled, 1):
                if yielded <= (piece.given if piece else 0):
                    continue
                self.at = Position(*begun, number, yielded, len(block), *after)
                if yielded == len(block):
                    begun = after
                    self.at = Position(*begun, number + 1)
                yield unit
        self.ended = True


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 5), max_size=30),
    block=st.sampled_from([1, 2, 3, 7]),
    counts=st.lists(st.sampled_from([1, 2, 3, 4, 8, 32]), min_size=1, max_size=5),
    chance=st.randoms(use_true_random=False),
)
def test_any_shards_interrupted_anywhere_yield_each_sample_once(
    sizes: list[int], block: int, counts: list[int], chance: random.Random
) -> None:
    work, found = Work(), []
    for step, shards in enumerate(counts):
        readers = [Reader(work, index, shards, sizes, block) for index in range(shards)]
        last = step == len(counts) - 1
        for reader in readers:
            found += list(islice(reader.samples, None if last or chance.random() < 0.2 else chance.randint(0, 12)))
        if not last:
            ended = {reader.index for reader in readers if reader.ended}
            if len(ended) == shards:
                break
            work = Work.decoded(work.after(shards, {r.index: r.at for r in readers}, ended, seed_of).encoded())
    assert sorted(found) == [Unit(number, place) for number, size in enumerate(sizes) for place in range(size)]


@settings(max_examples=300, deadline=None)
@given(
    size=st.integers(0, 60),
    block=st.sampled_from([0, 1, 3, 7]),
    counts=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=5),
    chance=st.randoms(use_true_random=False),
)
def test_samples_of_a_pipe_interrupted_anywhere_are_yielded_once(
    size: int, block: int, counts: list[int], chance: random.Random
) -> None:
    def order(index: int, number: int, samples: int) -> list[int]:
        return random.Random(seed_of(index, number)).sample(range(samples), samples)

    work, found = Work(), []
    for step, shards in enumerate(counts):
        last, positions, ended = step == len(counts) - 1, {}, set()
        for index in range(shards):
            mine = list(work.of(range(size), index, shards))
            given = len(mine) if last or chance.random() < 0.2 else chance.randint(0, len(mine))
            number, inside = divmod(given, block) if block else (given, 0)
            begin = number * block if block else given
            samples = min(block, len(mine) - begin)
            yielded = mine[:begin] + [mine[begin + place] for place in order(index, number, samples)[:inside]]
            found += yielded
            positions[index] = Position(begin, 0, number, inside, samples if inside else 0)
            if given == len(mine):
                ended |= {index} if chance.random() < 0.5 else set()
        if last or len(ended) == shards:
            break
        work = work.after_samples(shards, positions, ended, order)
    if not last:
        assert len(found) == size
    assert sorted(found) == list(range(size))


def test_state_of_a_million_objects_on_32_readers_is_small() -> None:
    chance = random.Random(1)
    work, shards = Work(), 32
    for step in range(3):
        at = {
            index: Position(chance.randint(0, 8000), 5, 7, 10, 1000, 9000 + chance.randint(0, 9), 1)
            for index in range(shards)
        }
        work = work.after(shards, at, (), seed_of)
        assert len(work.encoded()) < 100_000, step
        shards -= 7
