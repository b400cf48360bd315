"""The order of a channel's samples, and where in it a reader stands: what a shuffled epoch is, and how to go on in its middle.

An epoch's order is a pure function of the seed, the epoch and the shard, so that every process finds its own part of it
unasked, and a job that was interrupted finds it again. First the objects are put in an order, the same on every rank, and
dealt out; then the samples of a shard are shuffled in blocks: so many are read, and given in an order of the block's own. A
buffer that samples are drawn from would mix a little better, but what is in it depends on all that came before; a block
can be read again by itself. So a state is a few numbers (which object, where in it, which block, how many of it have been
given), and going on reads at most one block again.

A Pipe can neither be listed nor sought: its objects come in the order that SageMaker gives them, samples are shuffled in
blocks all the same, and going on reads what came before and drops it. Where several read it, blocks end for all of them at once.
Of a Pipe that SageMaker shuffles there is no going on in the middle: no job is brought that order again. Its state is that of the
epoch's beginning, so that samples may come twice, and none is left out.
"""

from __future__ import annotations

import inspect
import math
import os
import random
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

from entrypoints.errors import ChannelError, expect, whole_number
from entrypoints.fetching.background import in_background
from entrypoints.order.sharding import Shard
from entrypoints.records.cursor import Cursor
from entrypoints.sample import Sample, weight

T = TypeVar("T")
State: TypeAlias = dict[str, Any]  # what JSON can hold

VERSION = 2  # of the states
_NUMBERS = ("object", "position", "block", "given", "begun", "keys")  # what numbers say of it in a state
_MINIMUMS = (0, -math.inf, 0, 0, 0, 0)  # of each: a position in what was gzipped is negative


@dataclass(frozen=True)
class Reading:
    """How a channel is read. Without a seed, samples come as they lie, in the order of keys."""

    seed: int | None = None
    block: int = 1000  # samples of a shard that are shuffled together; 1 shuffles objects only
    block_bytes: int = 128_000_000  # a block ends there too, so that large samples do not fill the memory
    cache_dir: str | os.PathLike[str] | None = None  # a folder on a local disk that keeps objects for the next epochs

    def __post_init__(self) -> None:
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number("seed", self.seed))
        object.__setattr__(self, "block", whole_number("block", self.block, 1))
        object.__setattr__(self, "block_bytes", whole_number("block_bytes", self.block_bytes, 1))
        folder = self.cache_dir  # an empty one would be whichever folder the script happens to run in
        named = isinstance(folder, str | os.PathLike) and folder != ""
        expect(folder is None or named, "cache_dir", folder, "the path of a folder")

    def of_objects(self, objects: Iterable[T], epoch: int) -> Iterable[T]:
        """All objects of a channel in this epoch's order, before they are dealt out to the shards."""
        if self.seed is None:
            return objects
        known = objects if isinstance(objects, Sequence) else list(objects)
        shuffled = array("q", range(len(known)))  # of a million objects, their numbers are the smaller part
        random.Random(f"objects/{self.seed}/{epoch}").shuffle(shuffled)
        return map(known.__getitem__, shuffled)


class ShardCursor(Cursor):
    """Where in a shard a reader stands: the object, counted from 0, and the place in it. For a medium that cannot be sought
    `object` may count samples; whoever opens knows which.
    """

    __slots__ = ("begun", "cut", "expected", "finished", "keys", "object")

    def __init__(self) -> None:
        super().__init__()
        self.object = 0
        self.finished = False  # nothing of the shard is left
        self.cut = False  # a block ends with the last sample, says who deals a Pipe out
        self.begun = 0  # objects of the shard whose reading has begun
        self.keys = 0  # a checksum of the keys of these, in their order
        self.expected = (0, 0)  # what the two were when the state was taken

    def begin(self, key: str) -> bool:
        """Notes that the reading of the shard's next object begins; False where another was there when the state was taken."""
        self.begun += 1
        self.keys = crc32(key.encode("utf-8", "surrogateescape"), self.keys)
        return self.begun != self.expected[0] or self.keys == self.expected[1]


OpenSamples: TypeAlias = Callable[[ShardCursor], Generator[Sample, None, None]]


@dataclass(frozen=True)
class Order:
    """What decides which samples come in which order."""

    epoch: int
    shard: Shard
    reading: Reading
    assigned: bool  # the cursor says where blocks end (`cut`)
    unrepeatable: bool  # it is never brought again (Channel.shuffled)

    def of_block(self, samples: Sequence[T], number: int) -> Sequence[T]:
        """One block of the shard's samples."""
        shard = self.shard
        chance = random.Random(f"samples/{self.reading.seed}/{self.epoch}/{shard.index}/{shard.count}/{number}")
        return chance.sample(samples, len(samples))

    def described(self) -> State:
        """What of it a state has to agree with."""
        reading, part = self.reading, {"share": self.shard.index, "shares": self.shard.count}
        blocks = {
            "seed": reading.seed,
            "block": reading.block,
            "block_bytes": reading.block_bytes,
            "dealt": self.assigned,
        }
        return part if reading.seed is None else {**part, **blocks}


class Samples:
    """A shard's samples in one epoch: an iterator with a state.

    Args:
        open_samples: Yields the samples from a cursor's position on and moves the cursor.
        order: Their order.
        about: What is read (channel, format); a state can be loaded only into an iterator of the same.
    """

    def __init__(self, open_samples: OpenSamples, order: Order, about: State) -> None:
        self.epoch, self._order, self._at = order.epoch, order, ShardCursor()
        self._about = {**about, **order.described()}
        source = open_samples(self._at)
        # Unshuffled, nothing of ours stands between the reader and whoever reads: a call for each sample would show.
        self._blocks = None if order.reading.seed is None else _Blocks(order, self._at)
        self._samples = source if self._blocks is None else self._blocks.shuffled(source)

    def __iter__(self) -> Iterator[Sample]:
        return self._samples

    def __next__(self) -> Sample:
        return next(self._samples)

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the reading; so does whoever lets go of the iterator, once Python sees that."""
        self._samples.close()

    @property
    def finished(self) -> bool:
        """Whether the shard was read to its end, here or before the state that was loaded."""
        return self._at.finished if self._blocks is None else self._blocks.finished

    def finish(self) -> None:
        """Takes the shard as read to its end, without touching what it would be read from."""
        self.close()
        self._at.finished = True
        if self._blocks is not None:
            self._blocks.finished = True

    def state_dict(self) -> State:
        """Where the next sample begins; or that there is none."""
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "finished": self.finished,
            "of": self._about,
            **(dict.fromkeys(_NUMBERS, 0) if self._order.unrepeatable and not self.finished else self._numbers()),
        }

    def _numbers(self) -> State:
        blocks = self._blocks
        number, position = (self._at.object, self._at.position) if blocks is None else blocks.begun
        block, given = (0, 0) if blocks is None else (blocks.number, blocks.given)
        return dict(zip(_NUMBERS, (number, position, block, given, self._at.begun, self._at.keys), strict=True))

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` said, of the same channel, format, epoch, shard and order; before the first sample.

        Raises ChannelError where the state is none, or one of something else; reading raises it where the objects up to here are
        others than they were. Objects that were written anew under their keys are not noticed.
        """
        if inspect.getgeneratorstate(self._samples) != inspect.GEN_CREATED:
            raise ChannelError("a state is loaded before the first sample is read; open the channel again")
        here = {"version": VERSION, "epoch": self.epoch, **self._about}
        about = state.get("of")
        there = {"version": state.get("version"), "epoch": state.get("epoch")}
        there |= about if isinstance(about, dict) else {}
        differ = differences(here, there)
        numbers = [state.get(key) for key in _NUMBERS]
        if not differ and not all(
            isinstance(number, int) and number >= least for number, least in zip(numbers, _MINIMUMS, strict=True)
        ):
            differ = ["no place"]
        if differ:
            raise ChannelError(
                f"the state does not go with this reading: it is of {', '.join(differ)}; begin the epoch anew"
            )
        expected = self._at.expected = (state["begun"], state["keys"])
        self._at.object, self._at.start = state["object"], state["position"]
        self._at.position = self._at.start
        self._at.finished = bool(state.get("finished"))
        if self._at.finished:
            self._at.begun, self._at.keys = expected
        if self._blocks is not None:
            self._blocks.finished = self._at.finished
            self._blocks.begun = (state["object"], state["position"])
            self._blocks.number, self._blocks.given = state["block"], state["given"]


Block: TypeAlias = tuple[list[Sample], tuple[int, int]]  # samples, and object and position after them


class _Blocks:
    """Samples shuffled in blocks, and which of them have been given.

    It knows nothing of the Samples that uses it: a circle would keep the source open until Python looks for circles.
    """

    def __init__(self, order: Order, at: ShardCursor) -> None:
        self._order, self._at = order, at
        self.number = 0
        self.given = 0  # of this block's samples
        self.begun = (0, 0)  # object and position where it begins
        self.finished = False
        self._left = False

    def shuffled(self, source: Generator[Sample, None, None]) -> Generator[Sample, None, None]:
        """The samples, block by block."""
        with closing(self._from_broker(source) if self._order.assigned else self._from_reader(source)) as blocks:
            for block, after in blocks:
                samples: list[Any] = list(self._order.of_block(block, self.number))
                block.clear()
                last = len(samples) - 1
                for number in range(self.given, len(samples)):
                    self.given = number + 1
                    if number == last:
                        self.begun, self.given = after, 0
                        self.number += 1
                    sample, samples[number] = samples[number], None  # what has been given makes room for the next block
                    yield sample
            self.finished = True

    def _from_reader(self, source: Generator[Sample, None, None]) -> Generator[Block, None, None]:
        with closing(source):
            while (read := self._read(source))[0]:
                yield read

    def _from_broker(self, source: Generator[Sample, None, None]) -> Generator[Block, None, None]:
        """Blocks of a Pipe that several read. The next is read while this one is given: whoever is dealt samples and does not
        take them holds up the others, and nobody gives any before a block is full.
        """
        coming = self._start(source)
        try:
            while (read := coming.result())[0]:
                coming = self._start(source)
                yield read
        finally:
            # Python may be finalizing this generator, and would lose a Ctrl-C that comes meanwhile: so nothing is waited for.
            self._left = True
            if coming.done():
                source.close()  # else the thread that reads from it closes it, at its next sample

    def _start(self, source: Generator[Sample, None, None]) -> Future[Block]:
        """The next block, which is being read: a Pipe can be silent, and must not keep whoever leaves from leaving."""

        def read() -> Block:
            block = self._read(source)
            if self._left:
                source.close()
            return block

        return in_background(read, "next-block")

    def _read(self, source: Iterator[Sample]) -> Block:
        block: list[Sample] = []
        size, reading = 0, self._order.reading
        for sample in source:
            block.append(sample)
            if self._order.assigned:
                # Shards of one Pipe end their blocks at the same number, so that none waits for what another does not take.
                full = self._at.cut
            else:
                size += weight(sample)
                full = len(block) == reading.block or size >= reading.block_bytes
            if full or self._left:
                break
        return block, (self._at.object, self._at.position)


def differences(here: State, there: State) -> list[str]:
    """What a state's `there` says otherwise than the reading's `here`, in words."""
    keys = dict.fromkeys([*here, *there])
    return [f"{key} {there.get(key)!r}, not {here.get(key)!r}" for key in keys if there.get(key) != here.get(key)]
