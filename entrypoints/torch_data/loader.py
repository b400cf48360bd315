"""Batches without worker processes: threads read, transform and collate, and hand the batches over as they are.

A DataLoader's workers are processes, and every batch goes through a queue between them: some 750 MB/s of bytes each on a
small machine. Reading releases the GIL, and so do the image decoders, torch and numpy, so threads do the same work at the
same time in one memory and hand over nothing but a reference. Transforms of pure Python are better off in processes.

Which samples a batch holds does not depend on who is faster: as with a DataLoader's workers, each thread has a shard of its own,
and batches come from the threads in turn. So a state is one state for each thread and whose turn it is.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, TypeVar

import torch
import torch.distributed
from torch.utils.data import default_collate

from entrypoints.errors import ChannelError, expect, is_count, whole_number
from entrypoints.fetching.background import exit_deadline
from entrypoints.fetching.prefetch import end_all
from entrypoints.order.sampling import Samples, State
from entrypoints.samples.error_notes import add_sample_note
from entrypoints.samples.mixing import Mixture
from entrypoints.torch_data.dataset import StreamDataset, foreign

T = TypeVar("T")
_WAIT_SECONDS = 0.2  # between looks whether anybody still reads
_LEAVE_SECONDS = 3.0  # for the threads to end; one that waits for a silent FIFO is left behind


@dataclass(frozen=True)
class _Batch:
    content: Any
    state: State  # of its thread, after it


@dataclass(frozen=True)
class _End:
    error: BaseException | None
    state: State


class ThreadLoader:
    """Batches of a ChannelDataset or MixedDataset, read by `threads` threads of this process; one epoch per iteration.

    `collate` makes a batch of a list of samples; torch's default_collate unless given. `ahead` is how many batches each thread has
    ready. Errors are raised where their batch would have been. A loop that is left early ends the threads.
    """

    def __init__(
        self,
        dataset: StreamDataset,
        batch_size: int = 1,
        *,
        threads: int = 4,
        collate: Callable[[list[Any]], Any] = default_collate,
        drop_last: bool = False,
        ahead: int = 2,
    ) -> None:
        if not isinstance(dataset, StreamDataset):
            raise TypeError(
                f"a ThreadLoader reads a ChannelDataset or a MixedDataset, which divide a channel among threads, not a"
                f" {type(dataset).__name__}; use torch's DataLoader, or a ChannelDataset of the same channel"
            )
        expect(callable(collate), "collate", collate, "a function of a list of samples, such as list")
        self.dataset = dataset
        self._batch_size = whole_number("batch_size", batch_size, 1)
        self._threads, self._ahead = whole_number("threads", threads, 1), whole_number("ahead", ahead, 1)
        self._collate, self._drop_last = collate, drop_last
        self._state: State | None = None  # of the iteration that began last
        self._resumed: State | None = None

    def __iter__(self) -> Generator[Any, None, None]:
        begin, self._resumed = self._resumed, None
        if begin is not None and begin["epoch"] != self.dataset.epoch:
            begin = None
        if begin is not None and len(begin["threads"]) != self._threads:
            raise ChannelError(
                f"the state is of {len(begin['threads'])} threads, and here are {self._threads}; use as many, or begin anew"
            )
        samples = [self.dataset.samples(worker, self._threads) for worker in range(self._threads)]
        for each, state in zip(samples, begin["threads"] if begin else (), strict=False):
            each.load_state_dict(state)
        fresh = {
            "epoch": self.dataset.epoch,
            "threads": [each.state_dict() for each in samples],
            "ended": [],
            "turn": 0,
        }
        self._state = begin or fresh
        return self._batches(samples, self._state)

    def state_dict(self) -> State:
        """Where the iteration that began last stands: after the batch that it gave last."""
        for state in (self._resumed, self._state):
            if state is not None and state["epoch"] == self.dataset.epoch:
                # Else some threads would begin their shards of another order anew, and others have ended theirs.
                return {"epoch": state["epoch"]} if self.dataset.restarts_epoch and not _is_finished(state) else state
        return {"epoch": self.dataset.epoch}

    def load_state_dict(self, state: State) -> None:
        """Lets the next iteration go on where `state` says, in its epoch; or, where that is finished, with the next one.

        Of several ranks one may have finished while others have not, and all have to be in the same epoch: there the next iteration
        is of the state's epoch in any case, and gives nothing where that is finished. Raises ChannelError for what is no
        ThreadLoader's state.
        """
        _check(state)
        self.dataset.load_state_dict({"epoch": state["epoch"], "finished": _is_finished(state)})
        self._resumed = state if "threads" in state else None

    def _batches(self, samples: list[Samples | Mixture], begin: State) -> Generator[Any, None, None]:
        # Threads that had ended begin, too, and are waited for: a Pipe's other readers must know that they have ended.
        states, ended, turn = list(begin["threads"]), set[int](), begin["turn"]
        stop = threading.Event()
        queues: list[queue.Queue[_Batch | _End]] = [queue.Queue(self._ahead) for _ in samples]
        workers = [
            threading.Thread(target=self._work, args=(each, filled, stop), name="loader", daemon=True)
            for each, filled in zip(samples, queues, strict=True)
        ]
        for worker in workers:
            _workers.add(worker)
            worker.start()
        try:
            while len(ended) < self._threads:
                item = queues[turn].get() if turn not in ended else None
                if item is not None:
                    states[turn] = item.state
                if isinstance(item, _End):
                    ended.add(turn)
                    if item.error is not None:
                        raise item.error
                turn = (turn + 1) % self._threads
                self._state = {**begin, "threads": list(states), "ended": sorted(ended), "turn": turn}
                if isinstance(item, _Batch):
                    yield item.content
                del item  # a batch that was given must not be held while the next is waited for
        finally:
            # Python may be finalizing this generator, and would lose a Ctrl-C that comes meanwhile: so nothing is waited for.
            stop.set()

    def _work(self, samples: Samples | Mixture, filled: queue.Queue[_Batch | _End], stop: threading.Event) -> None:
        """One thread: batches of its shard until that ends, fails or nobody reads any more."""
        error: BaseException | None = None
        transform, sample = self.dataset.transform, None
        try:
            with closing(samples):
                batch: list[Any] = []
                for sample in samples:
                    batch.append(sample if transform is None else transform(sample))
                    sample = None  # it has been transformed, and is not held while the next is read
                    if stop.is_set():
                        return  # at once, and not after a whole batch
                    if len(batch) == self._batch_size:
                        if not _put(filled, _Batch(self._collate(batch), samples.state_dict()), stop):
                            return
                        batch = []
                if batch and not self._drop_last:
                    _put(filled, _Batch(self._collate(batch), samples.state_dict()), stop)
        except BaseException as caught:  # noqa: BLE001 - raised again where the batches are read
            error = caught
            if sample is not None and isinstance(caught, Exception) and isinstance(samples, Samples):
                add_sample_note(caught, sample, samples)
        _put(filled, _End(error, samples.state_dict()), stop)


_workers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _join_workers() -> None:
    """Wait a moment for threads to end: one that returns from torch while Python is taken down would abort the process."""
    end_all()  # else those that wait for a silent store would end only after the wait
    deadline = min(time.monotonic() + _LEAVE_SECONDS, exit_deadline())
    for worker in list(_workers):
        if worker.is_alive():  # A Ctrl-C may have come before it was started.
            worker.join(max(0.0, deadline - time.monotonic()))


def _check(state: Any) -> None:
    """Refuses what is no ThreadLoader's state, saying what it is."""
    known = state if isinstance(state, dict) else {}
    what = foreign(state)
    if "version" in known:
        dataset = "MixedDataset's" if "sources" in known else "ChannelDataset's"
        what = f"a {dataset}, without a loader or of one with num_workers=0: load it there"
    elif "threads" in known and not _is_whole(known):
        what = "damaged: of its threads, which of them have ended and whose turn it is, something is missing"
    if what is None:
        return
    raise ChannelError(
        f"a ThreadLoader goes on with what a ThreadLoader's state_dict() gave; this is {what}; or begin the epoch anew"
    )


def _is_finished(state: State) -> bool:
    return "threads" in state and len(state["ended"]) == len(state["threads"])


def _is_whole(state: State) -> bool:
    threads, ended, turn = state["threads"], state.get("ended"), state.get("turn")
    return (
        isinstance(threads, list)
        and all(isinstance(each, dict) for each in threads)
        and isinstance(ended, list)
        and all(is_count(number) and number < len(threads) for number in [*ended, turn])
    )


def _put(filled: queue.Queue[Any], item: Any, stop: threading.Event) -> bool:
    """Waits for room; whether anybody still reads."""
    while not stop.is_set():
        try:
            filled.put(item, timeout=_WAIT_SECONDS)
        except queue.Full:
            continue
        return True
    return False


def even_batches(batches: Iterable[T], *, kept: int = 8) -> Generator[tuple[T, bool], None, None]:
    """As many batches on every rank as the rank with the most has, each with whether it counts.

    Nothing is dropped: a rank that has run out gives its first batches again, marked False, so that every rank takes the same
    number of steps; such a batch should count for nothing in the metrics, and its loss can be multiplied by 0. `kept` is how many
    of its first batches a rank keeps for that. One that never had any (fewer objects than ranks; an epoch that is resumed
    near its end) is lent one by another rank. Every rank of the process group must iterate; without one, all count.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        yield from ((batch, True) for batch in batches)
        return
    first: list[T] = []
    repeated = 0
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    nothing: Any = object()
    for batch in chain(batches, repeat(nothing)):
        has_one = batch is not nothing
        # Who has one, the lowest rank of those; and whether anybody has none to give again.
        said = torch.tensor([rank if has_one else ranks, -int(not has_one and not first)], device=device)
        torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MIN)
        lender, somebody_needs = int(said[0]), bool(said[1])
        if lender == ranks:
            return
        if somebody_needs:
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
