"""Which of all readers this process is: pure arithmetic, without communication.

Items are divided among ranks first, then among a rank's readers (its DataLoader workers), so that a rank reads the same items with
any number of them. Each item belongs to exactly one reader of a job.

- FullyReplicated S3 channels, EFS, FSx and the connector: every host sees all objects, so they are divided among all ranks.
- ShardedByS3Key: SageMaker has divided them among the hosts, so a host's objects are divided among its own ranks.
- Pipe: the same by samples instead of objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError


@dataclass(frozen=True)
class Shard:
    """One reader's part: every `count`-th item, from the `index`-th on.

    Attributes:
        index: The reader's number, from 0.
        count: Readers that the channel is divided among.
        readers: Readers of this host, including this one.
        workers: Readers of this rank, including this one.
        host: This host's number and the number of hosts, if the items are those of this host alone.
    """

    index: int = 0
    count: int = 1
    readers: int = field(default=1, compare=False)
    workers: int = field(default=1, compare=False)
    host: tuple[int, int] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ChannelError(f"shard {self.index} of {self.count}: expected an index from 0 to count - 1")

    def fixed(self, shards: int, who: str) -> list[int]:
        """Return which of a fixed number of shards this reader has. Raises ChannelError if they cannot be divided equally.

        Consecutive shards belong to the readers of a rank: these take turns by batches, so a batch of all ranks has the same
        shards on any number of ranks, as long as each has as many readers.
        """
        worker, rank = divmod(self.index, self.count // self.workers)
        if shards % self.count:
            raise ChannelError(
                f"{who} cannot be divided equally among {self.count // self.workers} ranks with {self.workers} readers",
                remedy="use numbers whose product divides it",
            )
        return [*range(rank * self.workers + worker, shards, self.count)]


@dataclass(frozen=True)
class Placement:
    """A process's rank among all ranks of the job, and among those of its host."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    def __post_init__(self) -> None:
        if not (0 <= self.local_rank < self.local_world_size and 0 <= self.rank < self.world_size):
            raise ChannelError(
                f"RANK {self.rank} of WORLD_SIZE {self.world_size}, LOCAL_RANK {self.local_rank} of LOCAL_WORLD_SIZE "
                f"{self.local_world_size}: expected ranks from 0 to the size - 1",
                remedy="set them as torchrun does",
            )


def placement_from(environ: Mapping[str, str], host_rank: int, host_count: int) -> Placement:
    """Return this process's placement from torchrun's variables.

    Without RANK and WORLD_SIZE it is the only process of its host; without LOCAL_WORLD_SIZE all hosts have equally many ranks.

    Raises:
        ChannelError: A variable is not a number or out of range.
    """
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return Placement(rank=host_rank, world_size=host_count)
    return placement_of_rank(_number(environ, "RANK", 0), _number(environ, "WORLD_SIZE", 1), host_count, environ)


def placement_of_rank(rank: int, world_size: int, host_count: int, environ: Mapping[str, str]) -> Placement:
    """Return the placement of a rank that is known already, for example from a torch process group."""
    local_world_size = _number(environ, "LOCAL_WORLD_SIZE", max(1, world_size // host_count))
    return Placement(rank, world_size, _number(environ, "LOCAL_RANK", rank % local_world_size), local_world_size)


def shard_for(distribution: str, placement: Placement, worker: int = 0, workers: int = 1) -> Shard:
    """Return the shard of one of a rank's readers, for a channel's S3DataDistributionType."""
    host = None
    if distribution == contract.SHARDED:
        rank, ranks = placement.local_rank, placement.local_world_size
        host = (placement.rank // ranks, placement.world_size // ranks)
    else:
        rank, ranks = placement.rank, placement.world_size
    # An item's number modulo `ranks` is its rank whatever the number of workers.
    return Shard(worker * ranks + rank, workers * ranks, workers * placement.local_world_size, workers, host)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ChannelError(f"{name} is {text!r}", remedy="expected a number, as torchrun sets it") from None
