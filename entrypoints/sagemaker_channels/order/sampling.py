"""The order of a channel's samples.

The order is a pure function of seed, epoch and shard: every process computes its own part, and a resumed job finds it again.
First all objects are shuffled, the same way on every rank, and split into shards; then each shard's samples are shuffled in
blocks. A shuffle buffer would mix a little better, but depends on all earlier samples, while a block can be read again by itself.
So a position is a few numbers (work.py), and resuming rereads at most one block.

A Pipe has no listing and cannot seek: its objects keep SageMaker's order, and resuming reads and drops the earlier samples.
A Pipe that SageMaker shuffles gets another order in each job, so its state is the beginning of the epoch.
"""

from __future__ import annotations

import os
import random
import sys
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import TypeAlias, TypeVar

from sagemaker_channels.errors import expect, whole_number
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.order.states import FRESH
from sagemaker_channels.order.states import State as State
from sagemaker_channels.order.work import Piece
from sagemaker_channels.records.cursor import Cursor
from sagemaker_channels.sample import Sample

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """How a channel is read: order and cache.

    Attributes:
        seed: Seed of the shuffle; None keeps the order of keys.
        block: Samples of a shard that are shuffled together; 1 shuffles objects only.
        block_bytes: Size at which a block ends, too, so that large samples do not fill the memory.
        cache_dir: A folder on a local disk that keeps objects for later epochs.
        shards: Into how many shards an epoch is divided, if not into one for each rank and worker. With a number that these divide,
            any number of ranks reads the same samples in each step (see README.md).
        skip_damaged: How many damaged or undecodable samples each reader may skip in an epoch (records/damage.py); each rank,
            each of its workers and each thread is a reader. 0: the first is an error.
    """

    seed: int | None = None
    block: int = 1000
    block_bytes: int = 128_000_000
    cache_dir: str | os.PathLike[str] | None = None
    shards: int | None = None
    skip_damaged: int = 0

    def __post_init__(self) -> None:
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number("seed", self.seed))
        object.__setattr__(self, "block", whole_number("block", self.block, 1))
        object.__setattr__(self, "block_bytes", whole_number("block_bytes", self.block_bytes, 1))
        if self.shards is not None:
            object.__setattr__(self, "shards", whole_number("shards", self.shards, 1))
        object.__setattr__(self, "skip_damaged", whole_number("skip_damaged", self.skip_damaged, 0))
        # An empty cache_dir would be the script's working directory.
        named = isinstance(self.cache_dir, str | os.PathLike) and self.cache_dir != ""
        expect(self.cache_dir is None or named, "cache_dir", self.cache_dir, "the path of a folder")

    def order_of(self, count: int, epoch: int) -> Sequence[int] | None:
        """Return the order of so many objects in this epoch, before they are split into shards; None for that of their keys."""
        if self.seed is None:
            return None
        shuffled = array("q", range(count))  # numbers rather than a second list of a million objects
        random.Random(f"objects/{self.seed}/{epoch}").shuffle(shuffled)
        return shuffled


class ShardCursor(Cursor):
    """A reader's position in its shard: the item, counted from 0 (an object; in a Pipe a sample), and the position in it."""

    __slots__ = (
        *("_listing", "_pin", "begun", "cut", "digest", "finished", "item", "number", "passed", "piece", "resumption"),
        "pin_of",
    )

    def __init__(self) -> None:
        super().__init__()
        self.resumption = FRESH  # where reading begins
        self.item = 0
        # If a Pipe's only reader reads it: the numbers of the samples read since, from 1.
        self.passed: Iterator[int] = iter(())
        self.finished = False  # nothing of the shard is left
        self.cut = False  # a block ends with the last sample
        self.piece: Piece | None = None  # the block that ends there, if an earlier reader began it
        self.begun = 0  # the objects of the channel's listing up to the last whose reading has begun
        self.digest: Callable[[int], int] | None = None  # of so many keys
        self.number = -1  # in the listing, of the object that is being read
        self.pin_of: Callable[[int], int] | None = None  # of the object of such a number
        self._listing = self._pin = (-1, 0)

    def place(self) -> tuple[int, int, int]:
        """Return the item, the position in it, and the object's version if the position is in its middle."""
        remaining = length_hint(self.passed)
        item = self.item + (sys.maxsize - 1 - remaining if remaining else 0)
        if not self.position or self.pin_of is None:
            return item, self.position, 0
        if self._pin[0] != self.number:
            self._pin = (self.number, self.pin_of(self.number))
        return item, self.position, self._pin[1]

    def listing(self) -> list[list[int]]:
        """Return how many objects must be the same when reading resumes, and the digest of their keys."""
        if self.digest is None or not self.begun:
            return [list(pair) for pair in self.resumption.listing]
        if self._listing[0] != self.begun:
            self._listing = (self.begun, self.digest(self.begun))
        return [list(self._listing)]


OpenSamples: TypeAlias = Callable[[ShardCursor], Generator[Sample, None, None]]


@dataclass(frozen=True)
class Order:
    """Everything that determines the order of samples."""

    epoch: int
    shard: Shard
    reading: Reading
    assigned: bool  # the broker assigns the samples and sets the cursor's `cut` at the end of a block
    unrepeatable: bool  # no other job gets this order (Channel.shuffled)
    by_samples: bool = False  # The items of a shard are samples, not objects.

    def seed_of(self, index: int, count: int, number: int) -> str:
        """Return the seed of a block's order: of a shard's index, the number of shards, and the block's number."""
        return f"samples/{self.reading.seed}/{self.epoch}/{index}/{count}/{number}"

    def of_block(self, samples: Sequence[T], number: int) -> Sequence[T]:
        """Return one block of the shard's samples in its order."""
        return in_order(samples, self.seed_of(self.shard.index, self.shard.count, number))

    def described(self) -> State:
        """Return the part that a state must agree with."""
        reading, host = self.reading, self.shard.host
        about: State = {} if host is None else {"host": list(host)}
        if reading.seed is not None:
            about |= {"seed": reading.seed, "block": reading.block, "block_bytes": reading.block_bytes}
        return about


def in_order(samples: Sequence[T], seed: str) -> Sequence[T]:
    """Return samples in the order of a seed."""
    return random.Random(seed).sample(samples, len(samples))
