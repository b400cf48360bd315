"""What the ranks of a job do together: one state of all their loaders, and as many batches on every rank."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import chain, repeat
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed
from torch.utils.data import DataLoader

from entrypoints.order.states import State, epoch_of, merge_states
from entrypoints.torch_data.dataset import StreamDataset

T = TypeVar("T")


class Stateful(Protocol):
    """A loader or dataset with a state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


def gather_state(loader: Stateful) -> State:
    """Return the merged state of the loaders of all ranks, on every rank. A collective call: every rank must make it.

    Without a process group it is this process's own state, merged over its workers or threads. See `merge_states`.

    Args:
        loader: A ThreadLoader, a dataset, or a StatefulDataLoader of a dataset.

    Raises:
        ChannelError: The ranks' loaders are not at the same step of the same epoch.
    """
    state = loader.state_dict()
    if not _are_several():
        return merge_states([state])
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return merge_states(states)


def load_state(loader: Stateful | DataLoader[Any], state: State) -> None:
    """Continue at a loader's own state, or at the merged state of any number of ranks, workers and threads.

    Args:
        loader: A ThreadLoader, DataLoader or StatefulDataLoader that has not begun to iterate, or a dataset.
        state: What `state_dict()` of such a loader, `gather_state` or `merge_states` returned.

    Raises:
        ChannelError: The state is of another kind of loader.
    """
    dataset: Any = loader.dataset if isinstance(loader, DataLoader) else None
    if not isinstance(dataset, StreamDataset):
        loader.load_state_dict(state)  # type: ignore[union-attr] # a DataLoader has one, or raises AttributeError
    elif "_snapshot" in state or "_num_yielded" in state:
        loader.load_state_dict(state)  # type: ignore[union-attr]
        dataset.set_epoch(epoch_of(state))  # A StatefulDataLoader passes its state to the workers only.
    else:
        dataset.load_state_dict(
            state
        )  # A StatefulDataLoader knows only its own number of workers; its dataset knows any.


def even_batches(batches: Iterable[T], *, kept: int = 8) -> Generator[tuple[T, bool], None, None]:
    """Yield as many batches on every rank as the rank with the most has, so that all ranks take the same number of steps.

    A rank that has run out repeats its first batches; leave these out of the metrics, and multiply their loss by 0. A rank that had
    none (fewer objects than ranks; an epoch resumed near its end) receives one from another rank. Every rank of the process group
    must iterate.

    Args:
        batches: This rank's batches.
        kept: How many of its first batches a rank keeps to repeat.

    Yields:
        A batch, and whether it counts: False for a repeated one.
    """
    if not _are_several():
        yield from ((batch, True) for batch in batches)
        return
    first: list[T] = []
    repeated = 0
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    nothing: Any = object()
    for batch in chain(batches, repeat(nothing)):
        has_one = batch is not nothing
        # The lowest rank that has a batch; and whether a rank has none to repeat.
        votes = torch.tensor([rank if has_one else ranks, -int(not has_one and not first)], device=device)
        torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MIN)
        lender, one_is_missing = int(votes[0]), bool(votes[1])
        if lender == ranks:
            return
        if one_is_missing:
            lent: list[Any] = [batch if rank == lender else None]
            torch.distributed.broadcast_object_list(lent, src=lender)
            if not has_one and not first:
                first.append(lent[0])
        if has_one:
            if len(first) < kept:
                first.append(batch)
            yield batch, True
        else:
            yield first[repeated % len(first)], False
            repeated += 1


def _are_several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
