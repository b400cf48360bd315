"""The order of a channel's samples, and the state from which a reader resumes in the middle of an epoch.

The order is a pure function of seed, epoch and shard: every process computes its own part, and a resumed job finds it again.
First all objects are shuffled, the same way on every rank, and split into shards; then each shard's samples are shuffled in
blocks. A shuffle buffer would mix a little better, but depends on all earlier samples, while a block can be read again by itself.
So a state is a few numbers (object, position in it, block, samples yielded of it), and resuming rereads at most one block.

A Pipe has no listing and cannot seek: its objects keep SageMaker's order, and resuming reads and drops the earlier samples.
A Pipe that SageMaker shuffles gets another order in each job, so its state is the beginning of the epoch.
"""

from __future__ import annotations

import inspect
import math
import os
import random
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

from entrypoints.errors import ChannelError, expect, whole_number
from entrypoints.fetching.background import in_background
from entrypoints.meter import ahead, waited_for
from entrypoints.order.sharding import Shard
from entrypoints.records.cursor import Cursor
from entrypoints.sample import Sample, weight

T = TypeVar("T")
State: TypeAlias = dict[str, Any]  # only what JSON can hold

VERSION = 2  # of the states
_WORDS = {"share": "shard", "shares": "number of shards", "dealt": "assigned by the broker:"}  # for keys of a state
# The numbers in a state and their minimums; gzip positions are negative.
_NUMBERS = {"object": 0, "position": -math.inf, "block": 0, "given": 0, "begun": 0, "keys": 0}


@dataclass(frozen=True)
class Reading:
    """How a channel is read: order and cache.

    Attributes:
        seed: Seed of the shuffle; None keeps the order of keys.
        block: Samples of a shard that are shuffled together; 1 shuffles objects only.
        block_bytes: Size at which a block ends, too, so that large samples do not fill the memory.
        cache_dir: A folder on a local disk that keeps objects for later epochs.
    """

    seed: int | None = None
    block: int = 1000
    block_bytes: int = 128_000_000
    cache_dir: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number("seed", self.seed))
        object.__setattr__(self, "block", whole_number("block", self.block, 1))
        object.__setattr__(self, "block_bytes", whole_number("block_bytes", self.block_bytes, 1))
        # An empty cache_dir would be the script's working directory.
        named = isinstance(self.cache_dir, str | os.PathLike) and self.cache_dir != ""
        expect(self.cache_dir is None or named, "cache_dir", self.cache_dir, "the path of a folder")

    def of_objects(self, objects: Iterable[T], epoch: int) -> Iterable[T]:
        """Return all objects of a channel in this epoch's order, before they are split into shards."""
        if self.seed is None:
            return objects
        known = objects if isinstance(objects, Sequence) else list(objects)
        shuffled = array("q", range(len(known)))  # numbers rather than a second list of a million objects
        random.Random(f"objects/{self.seed}/{epoch}").shuffle(shuffled)
        return map(known.__getitem__, shuffled)


class ShardCursor(Cursor):
    """A reader's position in its shard: the object, counted from 0 (in a Pipe the sample), and the position in it."""

    __slots__ = ("begun", "cut", "expected", "finished", "keys", "object")

    def __init__(self) -> None:
        super().__init__()
        self.object = 0
        self.finished = False  # nothing of the shard is left
        self.cut = False  # the broker ends a block with the last sample
        self.begun = 0  # objects of the shard whose reading has begun
        self.keys = 0  # a checksum of their keys, in order
        self.expected = (0, 0)  # `begun` and `keys` when the state was taken

    def begin(self, key: str) -> bool:
        """Count the shard's next object; return False if it differs from the one when the state was taken."""
        self.begun += 1
        self.keys = crc32(key.encode("utf-8", "surrogateescape"), self.keys)
        return self.begun != self.expected[0] or self.keys == self.expected[1]


OpenSamples: TypeAlias = Callable[[ShardCursor], Generator[Sample, None, None]]


@dataclass(frozen=True)
class Order:
    """Everything that determines the order of samples."""

    epoch: int
    shard: Shard
    reading: Reading
    assigned: bool  # the broker assigns the samples and sets the cursor's `cut` at the end of a block
    unrepeatable: bool  # no other job gets this order (Channel.shuffled)

    def of_block(self, samples: Sequence[T], number: int) -> Sequence[T]:
        """Return one block of the shard's samples in its order."""
        shard = self.shard
        chance = random.Random(f"samples/{self.reading.seed}/{self.epoch}/{shard.index}/{shard.count}/{number}")
        return chance.sample(samples, len(samples))

    def described(self) -> State:
        """Return the part that a state must agree with."""
        reading = self.reading
        about = {"share": self.shard.index, "shares": self.shard.count}
        if reading.seed is not None:
            about |= {"seed": reading.seed, "block": reading.block, "block_bytes": reading.block_bytes}
            about |= {"dealt": self.assigned}
        return about


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
        # Unshuffled, the caller iterates over the reader itself: another call for each sample would be noticeable.
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
        """Stop reading and close the streams. Dropping the iterator does so too, when Python finalizes it."""
        self._samples.close()

    @property
    def finished(self) -> bool:
        """Whether the shard was read to its end, here or before the loaded state was taken."""
        return self._at.finished if self._blocks is None else self._blocks.finished

    def finish(self) -> None:
        """Treat the shard as read to its end, without opening anything."""
        self.close()
        self._at.finished = True
        if self._blocks is not None:
            self._blocks.finished = True

    def state_dict(self) -> State:
        """Return the position of the next sample, or that there is none."""
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
        """Resume at a state of the same channel, format, epoch, shard and order; call it before the first sample.

        Reading then raises ChannelError if the objects up to the position are not the same as before. Objects that were rewritten
        under their old keys are not noticed.

        Raises:
            ChannelError: The state is damaged or does not match, or a sample was read already.
        """
        if inspect.getgeneratorstate(self._samples) != inspect.GEN_CREATED:
            raise ChannelError("a state must be loaded before the first sample is read; open the channel again")
        about = state.get("of")
        there = {"version": state.get("version"), "epoch": state.get("epoch")}
        there |= about if isinstance(about, dict) else {}
        differ = differences({"version": VERSION, "epoch": self.epoch, **self._about}, there)
        if not differ and not all(isinstance(state.get(key), int) and state[key] >= _NUMBERS[key] for key in _NUMBERS):
            differ = "it has no position"
        if differ:
            raise ChannelError(f"the state does not match this reading: {differ}; restart the epoch")
        expected = self._at.expected = (state["begun"], state["keys"])
        self._at.object = state["object"]
        self._at.start = self._at.position = state["position"]
        self._at.finished = bool(state.get("finished"))
        if self._at.finished:
            self._at.begun, self._at.keys = expected
        if self._blocks is not None:
            self._blocks.finished = self._at.finished
            self._blocks.begun = (state["object"], state["position"])
            self._blocks.number, self._blocks.given = state["block"], state["given"]


Block: TypeAlias = tuple[list[Sample], tuple[int, int]]  # samples; object and position after them


class _Blocks:
    """Samples shuffled in blocks, and how many were yielded."""

    # It has no reference to its Samples: a reference cycle would keep the source open until garbage collection.

    def __init__(self, order: Order, at: ShardCursor) -> None:
        self._order, self._at = order, at
        self.number = 0
        self.given = 0  # samples of this block that were yielded
        self.begun = (0, 0)  # object and position at its beginning
        self.finished = False
        self._left = False

    def shuffled(self, source: Generator[Sample, None, None]) -> Generator[Sample, None, None]:
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
                    sample, samples[number] = samples[number], None  # frees memory for the next block
                    yield sample
            self.finished = True

    def _from_reader(self, source: Generator[Sample, None, None]) -> Generator[Block, None, None]:
        with closing(source):
            while (read := self._read(source))[0]:
                yield read

    def _from_broker(self, source: Generator[Sample, None, None]) -> Generator[Block, None, None]:
        """Yield the blocks of a Pipe with several readers, and read the next one meanwhile.

        A reader that does not take its samples blocks the others, and none yields a sample before its block is full.
        """
        # In a thread: a silent Pipe must not keep the caller from leaving.
        read_block = partial(in_background, partial(ahead, partial(self._read, source)), "next-block")
        coming = read_block()
        try:
            while (read := waited_for(coming))[0]:
                coming = read_block()
                yield read
        finally:
            # Do not wait here: Python may be finalizing this generator, and would lose a Ctrl-C during the wait.
            self._left = True
            if coming.done():
                source.close()  # Otherwise the thread that reads from it closes it, after its next sample.

    def _read(self, source: Generator[Sample, None, None]) -> Block:
        block: list[Sample] = []
        size, reading = 0, self._order.reading
        for sample in source:
            block.append(sample)
            if self._order.assigned:
                # All shards of a Pipe end their blocks together, so that none waits for samples that another does not take.
                full = self._at.cut
            else:
                size += weight(sample)
                full = len(block) == reading.block or size >= reading.block_bytes
            if full or self._left:
                break
        if self._left:
            source.close()
        return block, (self._at.object, self._at.position)


def differences(here: State, there: State) -> str:
    """Return, in words, how a state (`there`) differs from this reading (`here`); empty if it does not."""
    differ = [key for key in dict.fromkeys([*here, *there]) if there.get(key) != here.get(key)]
    old, new = (", ".join(f"{_WORDS.get(key, key)} {about.get(key)!r}" for key in differ) for about in (there, here))
    return f"it has {old}, but this reader has {new}" if differ else ""
