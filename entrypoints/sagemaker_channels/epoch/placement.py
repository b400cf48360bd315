"""Which of all readers this process is, without communication.

Items are divided among ranks first, then among a rank's readers (its DataLoader workers), so that a rank reads the same items with
any number of them. Each item belongs to exactly one reader of a job.

- FullyReplicated S3 channels, EFS, FSx and the connector: every host sees all objects, so they are divided among all ranks.
- ShardedByS3Key: SageMaker has divided them among the hosts, so a host's objects are divided among its own ranks.
- Pipe: the same by samples instead of objects.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel, Environment
from sagemaker_channels.job.process_identity import rank_variable
from sagemaker_channels.sources.silence import warn_once


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


@dataclass(frozen=True)
class Placement:
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    host: int | None = None  # this host's number, if ranks do not fill one host after the other

    def __post_init__(self) -> None:
        if not (0 <= self.local_rank < self.local_world_size and 0 <= self.rank < self.world_size):
            raise ChannelError(
                f"RANK {self.rank} of WORLD_SIZE {self.world_size}, LOCAL_RANK {self.local_rank} of LOCAL_WORLD_SIZE "
                f"{self.local_world_size}: expected ranks from 0 to the size - 1",
                remedy="set them as torchrun does",
            )


def has_group() -> bool:
    """Return whether this process is in a torch process group, without importing torch."""
    # It is not there yet if another thread imports torch, nor in a torch without it.
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def placement_of(environment: Environment) -> Placement:
    """Return this process's placement: by the torch process group, if there is one, or the variables of torchrun or mpirun.

    Without RANK and WORLD_SIZE it is the only process of its host; without LOCAL_WORLD_SIZE all hosts have equally many ranks.

    Warn of a group of one rank in a job of several: the backend mpi makes such groups under torchrun, and accelerate chooses it if
    torch has it. Raises ChannelError if a variable is not a number or out of range.
    """
    if not has_group():
        return _placement(environment)
    distributed = sys.modules["torch.distributed"]
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if ranks == 1 and (started := _placement(environment).world_size) > 1:
        warn_once(
            f"by its hosts, or by RANK and WORLD_SIZE, this job has {started} ranks, but each is alone in torch.distributed and"
            ' reads all samples; if not intended, call init_process_group with the backend "nccl" or "gloo" ("mpi" needs mpirun)'
        )
    return _placement(environment, rank, ranks)


def _placement(environment: Environment, rank: int | None = None, world_size: int = 1) -> Placement:
    """Return the placement of a rank that is known already, or by the variables."""
    hosts = len(environment.hosts)
    if rank is None:
        if rank_variable("RANK") is None or rank_variable("WORLD_SIZE") is None:
            return Placement(environment.host_rank, hosts)
        rank, world_size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    local_world_size = _number("LOCAL_WORLD_SIZE", max(1, world_size // hosts))
    local_rank = _number("LOCAL_RANK", rank % local_world_size)
    # `mpirun --map-by node` deals the ranks out to the hosts.
    host = environment.host_rank if "OMPI_COMM_WORLD_RANK" in os.environ else None
    return Placement(rank, world_size, local_rank, local_world_size, host)


def default_shard(channel: Channel, placement: Placement, worker: int = 0, workers: int = 1) -> Shard:
    """Return the shard of one of a rank's readers."""
    rank, ranks, local_ranks, host = placement.rank, placement.world_size, placement.local_world_size, None
    if channel.host_shard is not None:
        # torchrun's ranks count all hosts, but only these hosts receive the channel.
        index, hosts = channel.host_shard
        rank, ranks = index * local_ranks + placement.local_rank, hosts * local_ranks
    if channel.distribution == contract.SHARDED:
        number = rank // local_ranks if placement.host is None else placement.host
        host = (number, ranks // local_ranks)
        rank, ranks = placement.local_rank, local_ranks
    # An item's number modulo `ranks` is its rank whatever the number of workers.
    return Shard(worker * ranks + rank, workers * ranks, workers * local_ranks, workers, host)


def _number(name: str, default: int) -> int:
    text = rank_variable(name)
    try:
        return default if text is None else int(text)
    except ValueError:
        raise ChannelError(f"{name} is {text!r}", remedy="expected a number, as torchrun sets it") from None
