"""What the ranks of a job know of each other and do together, by the torch process group.

This process's rank; one state of all their loaders; as many batches on every rank, also for frameworks that run the loop
themselves; and listings that are compared by the group's store, so that no rank waits for another.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from concurrent.futures import TimeoutError as FutureTimeoutError  # Python's own only since 3.11
from datetime import timedelta
from itertools import chain, count, repeat
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed
from torch.utils.data import get_worker_info

from sagemaker_channels.epoch.placement import has_group
from sagemaker_channels.epoch.states import State, merge_states
from sagemaker_channels.errors import expect
from sagemaker_channels.sources.background import in_background
from sagemaker_channels.sources.silence import warn
from sagemaker_channels.torch_data import frameworks

T = TypeVar("T")

STORE_SECONDS = 20.0  # until an answer of the store, which is in the process of rank 0 or of torchrun
stores: dict[int, Any] = {}  # by process: a worker that was forked must not use its parent's connection


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
    return gathered(loader.state_dict())


def gathered(state: State) -> State:
    if not has_group():
        return merge_states([state])
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return merge_states(states)


def even_batches(batches: Iterable[T]) -> Generator[tuple[T, bool], None, None]:
    """Yield equally many batches on every rank: a rank that has run out takes batches that others have left.

    Each batch counts on one rank, so no sample is repeated. In the last steps, a rank that has only one batch left gives a copy of
    it, which does not count: leave that out of the metrics, and multiply its loss by 0. Every rank of the process group must
    iterate. Between two batches, the states of all ranks are of the same step. Ranks that read the same (`ranks=`) stay together.

    Args:
        batches: This rank's batches. They must pickle.

    Yields:
        A batch, and whether it counts.
    """
    expect(isinstance(batches, Iterable), "batches", batches, "a loader, or another iterable of batches")
    if not has_group():
        yield from ((batch, True) for batch in batches)
        return
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"

    def of_all(number: int) -> list[int]:
        numbers = torch.zeros(ranks, dtype=torch.int64, device=device)
        numbers[rank] = number
        torch.distributed.all_reduce(numbers)
        return numbers.tolist()

    dataset = getattr(batches, "stream", getattr(batches, "dataset", None))
    groups = of_all((getattr(dataset, "ranks", None) or (rank, ranks))[0])
    own_group, nothing = groups[rank], object()
    own: Any = chain(batches, repeat(nothing))
    for step in count():
        batch = next(own)
        votes = dict(zip(groups, of_all(batch is not nothing), strict=True))
        lenders, takers = ([group for group in sorted(votes) if bool(votes[group]) == has] for has in (True, False))
        if not lenders:
            return
        counts = True
        for number, taker in enumerate(takers, step):
            lender = lenders[number % len(lenders)]
            if own_group == lender:
                spare = next(own)
                if rank == groups.index(lender):
                    sent = [(batch, False) if spare is nothing else (spare, True)]
                    for member in (each for each, group in enumerate(groups) if group == taker):
                        torch.distributed.send_object_list(sent, member)
            elif own_group == taker:
                received: list[Any] = [None]
                torch.distributed.recv_object_list(received, groups.index(lender))
                batch, counts = received[0]
        yield batch, counts


class EvenLoader:
    """The batches of a loader, equally many on every rank as `even_batches` yields them, for HF's Trainer and the like.

    Args:
        loader: A ThreadLoader, WorkerLoader, or DataLoader, which does not know its position, of a ChannelDataset or
            MixedDataset. A rank that has no batch in the last step gets a copy of another rank's.
    """

    def __init__(self, loader: Any) -> None:
        dataset: Any = getattr(loader, "stream", getattr(loader, "dataset", None))
        remedy = "a ThreadLoader, WorkerLoader or DataLoader of a ChannelDataset or MixedDataset"
        expect(hasattr(dataset, "_epochs"), "loader", loader, remedy)
        self.loader, self.dataset = loader, dataset

    @property
    def drop_last(self) -> bool:
        """What accelerate's skip_first_batches asks, with which HF's Trainer resumes."""
        frameworks.check_not_skipped()
        return bool(self.loader.drop_last)

    # It has no set_epoch: HF's Trainer would call it with an epoch that it counts from 0 in each resumed job.

    def __iter__(self) -> Generator[Any, None, None]:
        is_resumed, is_empty = self.dataset._epochs.is_loaded, True
        for batch, _ in even_batches(self.loader):
            is_empty = False
            yield batch
        # The state is that after an epoch's last batch, and HF's Trainer would end with an empty loop.
        if is_resumed and is_empty:
            yield from EvenLoader.__iter__(self)

    def state_dict(self) -> State:
        """Return the merged state of all ranks. A collective call: every rank must make it."""
        return gather_state(self.loader)

    def load_state_dict(self, state: State) -> None:
        """Resume at the state of any number of ranks with the next iteration."""
        getattr(self.loader, "load_state_dict", self.dataset.load_state_dict)(state)


class LightningLoader(EvenLoader):
    """An EvenLoader for Lightning's Trainer, which stores its state in the checkpoint.

    Lightning takes the state on every rank and stores that of rank 0, so it is of all ranks. Since the loader has no length,
    Lightning fetches one batch ahead, so the state is that before the last batch.

    Raises:
        ChannelError: The loader does not know its position.
    """

    def __init__(self, loader: Stateful) -> None:
        frameworks.check_stateful(loader)
        super().__init__(loader)
        self._before: State | None = None
        self._now: State | None = None

    def __iter__(self) -> Generator[Any, None, None]:
        self._before = self._now = self.loader.state_dict()
        for batch in super().__iter__():
            self._before, self._now = self._now, self.loader.state_dict()
            yield batch
        self._before = self._now = self.loader.state_dict()

    def state_dict(self) -> State:
        return gathered(self._before or self.loader.state_dict())


def exchange(name: str, text: str) -> str | None:
    """Store a text unless the job has one under its name; return the one that is stored.

    None if there is no store, or it does not answer. It is asked in a thread, since torch may wait for ever: a worker of a rank 0
    that was killed holds its socket, and never answers.
    """
    process, attempt = os.getpid(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def answer() -> str | None:
        if process not in stores:
            stores[process] = _store()
        store = stores[process]
        return None if store is None else str(store.compare_set(f"launcher/{attempt}/{name}", "", text).decode())

    try:
        return in_background(answer, "job's store").result(1.5 * STORE_SECONDS)  # The store's own limit says more.
    except (RuntimeError, FutureTimeoutError) as error:
        stores[process] = None  # Another attempt might wait as long.
        reason = str(error)[:200] or f"the job's store has not answered for {1.5 * STORE_SECONDS:g} s"
        warn(f"{name.partition(' from ')[0]}: is not compared with what other ranks read: {reason}")
        return None


def _store() -> Any:
    """Return a connection to the job's store; None if there is none, or this release of torch cannot make a second one."""
    distributed: Any = torch.distributed
    if has_group():
        default = distributed.distributed_c10d._get_default_store()
        inner = default
        while hasattr(inner, "underlying_store"):
            inner = inner.underlying_store
        # `clone` would wait for a rank 0 that has died as long as the group does.
        if isinstance(inner, distributed.TCPStore):
            return _connected(inner.host, inner.port)
        if not hasattr(default, "clone"):
            return None if get_worker_info() else default
        store = default.clone()
        store.set_timeout(timedelta(seconds=STORE_SECONDS))
        return store
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or not distributed.is_available():
        return None
    return _connected(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def _connected(host: str, port: int) -> Any:
    # libuv is for servers, but builds without it, such as Debian's, refuse clients with this default, too.
    distributed: Any = torch.distributed
    return distributed.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=STORE_SECONDS), use_libuv=False)
