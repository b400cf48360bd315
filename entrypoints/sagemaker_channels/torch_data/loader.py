"""Batches without worker processes: threads read, transform and collate.

A DataLoader's workers send each batch through a queue between processes, at some 750 MB/s per worker on a small machine. Reading,
image decoders, torch and numpy release the GIL, so threads do the same work in parallel and pass only references. Transforms in
pure Python are faster in processes.

Batches do not depend on the threads' speed: like a DataLoader's workers, each thread has its own shard, and the threads take turns.
So a state is a state per thread and whose turn it is.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import atexit
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from sagemaker_channels.errors import ChannelError, expect, whole_number
from sagemaker_channels.fetching.background import exit_deadline
from sagemaker_channels.fetching.prefetch import end_all
from sagemaker_channels.order.iterations import check_state
from sagemaker_channels.order.samples import Samples
from sagemaker_channels.order.sampling import State
from sagemaker_channels.order.sharding import Placement
from sagemaker_channels.samples.mixing import Mixture
from sagemaker_channels.torch_data.batch_memory import keep_memory
from sagemaker_channels.torch_data.shared_tensors import collated
from sagemaker_channels.torch_data.stream_dataset import StreamDataset
from sagemaker_channels.waits import are_recorded, timed_transform

_AHEAD = 2  # batches that each thread prepares in advance
_WAIT_SECONDS = 0.2  # between two checks whether the loop was left
_LEAVE_SECONDS = 3.0  # for the threads to end; one that waits for a silent FIFO is left behind


@dataclass(frozen=True)
class _Item:
    """A batch of a thread, or its end."""

    state: State  # the thread's, after this
    batch: Any = None
    samples: int = 0
    ended: bool = False
    error: BaseException | None = None


class ThreadLoader(DataLoader[Any]):
    """Batches of a dataset, read by threads of this process; one epoch per iteration.

    It has a DataLoader's attributes, with the threads as `num_workers`. accelerate, Fabric and Lightning take it as a DataLoader;
    none of them divides its batches, since each rank has its own.

    An error is raised in place of its batch. Leaving the loop early ends the threads. Its loops record their waits (waits.py).

    Args:
        dataset: A ChannelDataset or MixedDataset.
        batch_size: Samples per batch.
        threads: Threads, each with its own shard.
        collate: A function that makes a batch from a list of samples.
        drop_last: Whether to drop each thread's incomplete last batch.
        pin_memory: Whether to copy tensors to pinned memory, from which they are copied to a GPU faster.

    Raises:
        TypeError: The dataset is of another kind, or `collate` is not a function.
        ValueError: A number is not a whole number from 1 on.
    """

    is_timed = True
    dataset: StreamDataset
    batch_size: int

    def __init__(
        self,
        dataset: StreamDataset,
        batch_size: int = 1,
        *,
        threads: int = 4,
        collate: Callable[[list[Any]], Any] = default_collate,
        drop_last: bool = False,
        pin_memory: bool = False,
    ) -> None:
        if not isinstance(dataset, StreamDataset):
            raise TypeError(
                f"a ThreadLoader needs a ChannelDataset or a MixedDataset, which divide a channel among threads, not a"
                f" {type(dataset).__name__}; use torch's DataLoader, or a ChannelDataset of the same channel"
            )
        expect(callable(collate), "collate", collate, "a function of a list of samples, such as list")
        super().__init__(dataset, whole_number("batch_size", batch_size, 1), collate_fn=collate, drop_last=drop_last)
        self.threads = self.num_workers = whole_number("threads", threads, 1)
        self.pin_memory = pin_memory
        self._device: Any = None  # where accelerate wants batches to be
        self._state: State | None = None  # of the iteration that began last
        self._unread: list[Samples | Mixture] = []  # its samples until it reads
        self._counted: list[Samples | Mixture] = []  # by `len`, for the next iteration, which lists nothing again

    def __len__(self) -> int:
        """The number of batches in the next epoch. Raises TypeError with the reason if no index has that of the samples."""
        epoch, rest = self.dataset.epoch, 0 if self.drop_last else self.batch_size - 1
        known = self._unread or self._counted  # `list` calls this after the iteration has begun, before it reads
        if not known or known[0].epoch != epoch:
            known = self._counted = self._samples(epoch)
        return sum((samples.counted() + rest) // self.batch_size for samples in known)

    def _samples(self, epoch: int) -> list[Samples | Mixture]:
        return [self.dataset.samples(thread, self.threads, epoch) for thread in range(self.threads)]

    def __bool__(self) -> bool:
        return True  # without counting

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the dataset's next iteration, from 0."""
        self.dataset.set_epoch(epoch)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Accelerate's mark of a loader that it leaves as it is."""
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, _: bool) -> None:
        """Yield batches on accelerate's device from now on; `prepare` sets its mark on whatever it returns."""
        self._device = sys.modules["accelerate"].PartialState().device

    def _placed(self, batch: Any) -> Any:
        if self._device is None:
            return batch
        return sys.modules["accelerate"].utils.send_to_device(batch, self._device, non_blocking=self.pin_memory)

    def _collated(self, samples: list[Any]) -> Any:
        batch = collated(samples) if self.collate_fn is default_collate else self.collate_fn(samples)
        return pinned(batch) if self.pin_memory and torch.accelerator.is_available() else batch  # type: ignore[no-untyped-call]

    def __iter__(self) -> Generator[Any, None, None]:  # type: ignore[override] # a DataLoader's is a class of torch
        begin, placement = self.dataset.begin(), self.dataset.own_placement
        state = begin.state or {}
        threads = state["threads"] if "threads" in state else [begin.state] * self.threads
        if len(threads) != self.threads:
            raise ChannelError(
                f"the state was saved with {len(threads)} threads, but this loader has {self.threads}; merge the states of all"
                " ranks by sagemaker_channels.merge_states, or restart the epoch"
            )
        samples, self._counted = self._counted, []
        if not samples or samples[0].epoch != begin.epoch:
            samples = self._samples(begin.epoch)
        self._unread = samples
        for each, of_thread in zip(samples, threads, strict=True):
            if of_thread is not None:
                each.load_state_dict(of_thread)
            if begin.is_over:
                each.finish()
        states = [each.state_dict() for each in samples]
        turn = next((turn for turn in range(self.threads) if state.get("thread") == [turn, self.threads]), 0)
        fresh = {"epoch": begin.epoch, "threads": states, "ended": [], "turn": turn}
        self._state = state if "threads" in state else fresh
        batches = self._batches(samples, self._state, placement)
        return self.dataset.shared_work.loop(threads=self.threads).over(batches) if are_recorded() else batches

    def state_dict(self) -> State:
        """Return the position of the last iteration: after the batch that it yielded last."""
        state = self.dataset.iterations.state(self._state)
        # Otherwise threads would resume in another order, with some of their shards finished.
        return {"epoch": state["epoch"]} if self.dataset.restarts_epoch and not _is_finished(state) else state

    def load_state_dict(self, state: State) -> None:
        """Resume at a state with the next iteration; after a finished epoch with the next epoch.

        With several ranks, which may not all have finished, the next iteration is always in the state's epoch; if that is finished,
        it yields no batch.

        Raises:
            ChannelError: It is not a ThreadLoader's state.
        """
        check_state(state, "ThreadLoader")
        self.dataset.load(state, _is_finished(state))

    def _batches(
        self, samples: list[Samples | Mixture], begin: State, placement: Placement
    ) -> Generator[Any, None, None]:
        # Threads that had ended start too, and are waited for: a Pipe's other readers must know that their shards are finished.
        self._unread = []
        keep_memory()
        states, ended, turn = list(begin["threads"]), set[int](), begin["turn"]
        stop, cores = threading.Event(), torch.get_num_threads()
        queues: list[queue.Queue[_Item]] = [queue.Queue(_AHEAD) for _ in samples]
        workers = [
            threading.Thread(target=self._work, args=(number, each, filled, stop, cores), name="loader", daemon=True)
            for number, (each, filled) in enumerate(zip(samples, queues, strict=True))
        ]
        for worker in workers:
            _workers.add(worker)
            worker.start()
        try:
            while len(ended) < self.threads:
                item = queues[turn].get() if turn not in ended else None
                if item is not None:
                    states[turn] = item.state
                    if item.error is not None:
                        raise item.error
                    if item.ended:
                        ended.add(turn)
                turn = (turn + 1) % self.threads
                self._state = {**begin, "threads": list(states), "ended": sorted(ended), "turn": turn}
                if item is not None and not item.ended:
                    yield self._placed(item.batch)
                del item  # frees the yielded batch while the next is waited for
            self.dataset.end(begin["epoch"], placement)
        finally:
            # Do not wait here: Python may be finalizing this generator, and would lose a Ctrl-C during the wait.
            stop.set()

    def _work(
        self, number: int, samples: Samples | Mixture, filled: queue.Queue[_Item], stop: threading.Event, cores: int
    ) -> None:
        """Run a thread: make batches of its shard until it ends or fails, or the loop is left."""
        _use_one_core(cores)
        error: BaseException | None = None
        items = self._items(samples, stop)
        if are_recorded():
            items = self.dataset.shared_work.worker(number).over(items, attrgetter("samples"))
        try:
            with closing(items):
                for item in items:
                    if not _put(filled, item, stop):
                        return
        except BaseException as caught:  # noqa: BLE001 - raised again where the batches are read
            error = caught
        _put(filled, _Item(samples.state_dict(), ended=True, error=error), stop)

    def _items(self, samples: Samples | Mixture, stop: threading.Event) -> Generator[_Item, None, None]:
        collate = timed_transform(self._collated)
        batch: list[Any] = []
        with closing(samples):
            for sample in self.dataset.transformed(samples):
                batch.append(sample)
                del sample  # frees it while the next is read
                if stop.is_set():
                    return  # immediately, not after a whole batch
                if len(batch) == self.batch_size:
                    yield _Item(samples.state_dict(), collate(batch), len(batch))
                    batch = []
            if batch and not self.drop_last:
                yield _Item(samples.state_dict(), collate(batch), len(batch))


def _use_one_core(others: int) -> None:
    """Let torch use one core in this thread, as a DataLoader does in its workers; `others` is the number for later threads.

    torch divides large copies, such as those that stack a batch, among one thread for each core. If all threads of a loader do
    so, they wait for each other, and take the cores on which the others decode.
    """
    torch.get_num_threads()  # Otherwise torch would set this thread's number again when it first needs it.
    torch.set_num_threads(1)
    # That has set the number of later threads, too, which another thread can set back.
    restoring = threading.Thread(target=torch.set_num_threads, args=(others,))
    restoring.start()
    restoring.join()


_workers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _join_workers() -> None:
    """Wait a moment for threads to end: one that returns from torch while Python exits would abort the process."""
    end_all()  # else those that wait for a silent store would end only after the wait
    deadline = min(time.monotonic() + _LEAVE_SECONDS, exit_deadline())
    for worker in list(_workers):
        if worker.is_alive():  # A Ctrl-C may have come before it was started.
            worker.join(max(0.0, deadline - time.monotonic()))


def _is_finished(state: State) -> bool:
    return bool(state.get("finished")) or ("threads" in state and len(state["ended"]) == len(state["threads"]))


def _put(filled: queue.Queue[_Item], item: _Item, stop: threading.Event) -> bool:
    """Wait for room in the queue; return False if the loop was left meanwhile."""
    while not stop.is_set():
        try:
            filled.put(item, timeout=_WAIT_SECONDS)
        except queue.Full:
            continue
        return True
    return False
