"""Which objects or samples belong to this process: pure arithmetic, so that every process finds its own part unasked.

A shard is every `count`-th item from the `index`-th on. Ranks divide first and DataLoader workers divide a rank's part,
so that what a rank reads does not depend on how many workers it uses. Over all processes of a job every item belongs
to exactly one shard.

- FullyReplicated S3 channels, EFS, FSx and the connector: every host sees everything, so all the job's ranks divide it.
- ShardedByS3Key: SageMaker gave the host its part already, so only the host's own ranks divide it.
- Pipe: the same, by samples instead of objects; the host's broker (`broker`) deals them out where there are several readers.

torchrun's RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE say where a process stands; without them there is one
process per host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from entrypoints import contract
from entrypoints.errors import ChannelError

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """Every `count`-th item, from the `index`-th on; both ends of an epoch agree on the items' order."""

    index: int = 0
    count: int = 1
    readers: int = field(default=1, compare=False)  # shards that are read on this host, this one included
    workers: int = field(default=1, compare=False)  # shards that are read by this rank, this one included

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ChannelError(f"shard {self.index} of {self.count}: expected an index from 0 to count - 1")

    @property
    def rank(self) -> int:
        """The rank whose shard this is, among all the ranks that divide the channel."""
        return self.index % (self.count // self.workers)

    def of(self, items: Iterable[T]) -> Iterator[T]:
        """The items of this shard, in their order."""
        return islice(items, self.index, None, self.count)


EVERYTHING = Shard()


@dataclass(frozen=True)
class Placement:
    """Where a process stands: among all the job's ranks, and among those of its host."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    def __post_init__(self) -> None:
        if not (0 <= self.local_rank < self.local_world_size and 0 <= self.rank < self.world_size):
            raise ChannelError(
                f"RANK {self.rank} of WORLD_SIZE {self.world_size}, LOCAL_RANK {self.local_rank} of LOCAL_WORLD_SIZE "
                f"{self.local_world_size}: a rank counts from 0 to its size - 1; set them as torchrun does"
            )


def placement_from(environ: Mapping[str, str], host_rank: int, host_count: int) -> Placement:
    """This process's placement, by torchrun's variables; without RANK and WORLD_SIZE the one process of its host.

    Launchers that set RANK and WORLD_SIZE only are taken to start as many ranks on each host. Raises ChannelError where a
    variable is no number or out of range.
    """
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return Placement(rank=host_rank, world_size=host_count)
    return placement_of_rank(_number(environ, "RANK", 0), _number(environ, "WORLD_SIZE", 1), host_count, environ)


def placement_of_rank(rank: int, world_size: int, host_count: int, environ: Mapping[str, str]) -> Placement:
    """The place of a rank that is known from elsewhere, such as a torch process group."""
    local_world_size = _number(environ, "LOCAL_WORLD_SIZE", max(1, world_size // host_count))
    return Placement(rank, world_size, _number(environ, "LOCAL_RANK", rank % local_world_size), local_world_size)


def shard_for(distribution: str, placement: Placement, worker: int = 0, workers: int = 1) -> Shard:
    """The shard of one DataLoader worker (of `workers`) of a rank, for a channel's S3DataDistributionType."""
    if distribution == contract.SHARDED:
        rank, ranks = placement.local_rank, placement.local_world_size
    else:
        rank, ranks = placement.rank, placement.world_size
    # An item's number modulo `ranks` is its rank whatever the number of workers.
    return Shard(worker * ranks + rank, workers * ranks, workers * placement.local_world_size, workers)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ChannelError(f"{name} is {text!r}, not a number; set it as torchrun does") from None
