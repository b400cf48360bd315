"""What the ranks of a job do together: one state of all their loaders, and as many batches on every rank."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import chain, count, repeat
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed

from sagemaker_channels.epoch.states import State, merge_states
from sagemaker_channels.errors import expect
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
    expect(isinstance(batches, Iterable), "batches", batches, "a loader, or another iterable of batches")
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


def _are_several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
