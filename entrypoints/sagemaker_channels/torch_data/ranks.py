"""What the ranks of a job do together: one state of all their loaders, and as many batches on every rank."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, count, repeat
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from sagemaker_channels.epoch.states import State, merge_states
from sagemaker_channels.torch_data import frameworks

T = TypeVar("T")


class Stateful(Protocol):
    """A loader or dataset with a state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


def gather_state(loader: Stateful) -> State:
    """Return the merged state of the loaders of all ranks, on every rank. A collective call: every rank must make it.

    Without a process group it is this process's own state. See `merge_states`.

    Args:
        loader: A ThreadLoader, a WorkerLoader, or a dataset.

    Raises:
        ChannelError: The ranks' loaders are not at the same step of the same epoch, or the loader does not know its position.
    """
    frameworks.check_stateful(loader)
    state = loader.state_dict()
    if not _are_several():
        return merge_states([state])
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return merge_states(states)


def even_batches(batches: Iterable[T]) -> Generator[tuple[T, bool], None, None]:
    """Yield equally many batches on every rank: a rank that has run out takes batches that others have left.

    Each batch counts on one rank, so no sample is repeated. In the last steps, a rank that has only one batch left gives a copy of
    it, which does not count: leave that out of the metrics, and multiply its loss by 0. Every rank of the process group must
    iterate. Between two batches, the states of all ranks are of the same step.

    Args:
        batches: This rank's batches. They must pickle.

    Yields:
        A batch, and whether it counts.
    """
    if not _are_several():
        yield from ((batch, True) for batch in batches)
        return
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    nothing: Any = object()
    own = chain(batches, repeat(nothing))
    for step in count():
        batch = next(own)
        votes = torch.zeros(ranks, dtype=torch.int64, device=device)
        votes[rank] = batch is not nothing
        torch.distributed.all_reduce(votes)
        lenders, takers = votes.nonzero()[:, 0].tolist(), (votes == 0).nonzero()[:, 0].tolist()
        if not lenders:
            return
        counts = True
        for number, taker in enumerate(takers, step):
            lender = lenders[number % len(lenders)]
            if rank == lender:
                spare = next(own)
                torch.distributed.send_object_list([(batch, False) if spare is nothing else (spare, True)], taker)
            elif rank == taker:
                received: list[Any] = [None]
                torch.distributed.recv_object_list(received, lender)
                batch, counts = received[0]
        yield batch, counts


def uneven_ranks(model: torch.nn.Module) -> AbstractContextManager[Any]:
    """Return a context for an epoch's loop in which ranks may run out of batches at different times.

    A rank of a DistributedDataParallel model that has run out, or has no batch at all, keeps answering the others' collective calls
    (torch's Join); models that are not distributed need nothing. Make your own collective calls after the block, when every rank
    has left it.

    Raises:
        TypeError: The model is sharded (FSDP), whose ranks must all take part in each step.
    """
    inner = getattr(model, "_orig_mod", model)  # of torch.compile
    if isinstance(inner, DistributedDataParallel):
        return Join([inner])
    fsdp = sys.modules.get("torch.distributed.fsdp")  # imported if a model is sharded
    kinds = tuple(getattr(fsdp, name) for name in ("FullyShardedDataParallel", "FSDPModule") if hasattr(fsdp, name))
    if any(isinstance(module, kinds) for module in inner.modules()):
        raise TypeError("ranks of an FSDP model cannot end at different times; loop over even_batches(loader) instead")
    return nullcontext()


def _are_several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
