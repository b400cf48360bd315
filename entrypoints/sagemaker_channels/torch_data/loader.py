"""Batches without worker processes: threads read, transform and collate.

A DataLoader's workers send each batch through a queue between processes, at some 750 MB/s per worker on a small machine. Image
decoders, torch and numpy release the GIL, so threads do the same work in parallel and pass only references. Transforms in pure
Python are faster in processes (worker_loader.py).

Whichever thread is free reads a list of the next samples, and makes a batch of it while others read on: small samples are still in
its core's cache. So batches do not depend on the threads' number or speed, and these are no part of a state.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import atexit
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from sagemaker_channels.epoch.deals import place_of
from sagemaker_channels.epoch.samples import Mark, Samples
from sagemaker_channels.epoch.transformed import NOTHING
from sagemaker_channels.errors import whole_number
from sagemaker_channels.sources.background import exit_deadline
from sagemaker_channels.torch_data.epochs import Loop
from sagemaker_channels.torch_data.shared_memory import keep_memory
from sagemaker_channels.torch_data.shared_tensors import collating
from sagemaker_channels.torch_data.stream_dataset import StreamDataset
from sagemaker_channels.torch_data.worker_loader import PositionedLoader
from sagemaker_channels.waits import are_recorded, timed_transform

_AHEAD = 2  # batches that each thread makes in advance
_STEP = 16  # samples that are read before the next look at whether the loop was left


class ThreadLoader(PositionedLoader):
    """Batches of a dataset, made by threads of this process; one epoch per iteration.

    It has a DataLoader's attributes, with the threads as `num_workers`. accelerate, Fabric and Lightning take it as a DataLoader;
    none of them divides its batches, since each rank has its own. An error is raised in place of its batch. Leaving the loop early
    ends the threads. Its loops record their waits (waits.py).

    Args:
        dataset: A ChannelDataset or MixedDataset.
        batch_size: Samples per batch; fewer, if damaged ones are skipped.
        num_workers: Threads that read, transform and collate at the same time, at least one for each of the `readers`. What they
            call must be thread-safe, and random numbers that they share are in another order in each run.
        readers: Parts of the rank's samples that are read at the same time, by turns: for formats that take long to read (gzip,
            Parquet), and for large files in memory whose samples are hardly transformed. States are of as many.
        collate_fn: A function that makes a batch from a list of samples.
        drop_last: Whether to drop each reader's incomplete last batch.
        pin_memory: Whether to copy tensors to pinned memory, from which they are copied to a GPU faster.

    Raises:
        TypeError: The dataset is of another kind, or `collate_fn` is not a function.
        ValueError: A number is not a whole number from 1 on, or `num_workers` from 0 on.
    """

    is_timed = True
    dataset: StreamDataset
    batch_size: int

    def __init__(
        self,
        dataset: StreamDataset,
        batch_size: int = 1,
        *,
        num_workers: int = 4,
        readers: int = 1,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        drop_last: bool = False,
        pin_memory: bool = False,
    ) -> None:
        size = self._read_by(dataset, batch_size, collate_fn, drop_last=drop_last)
        super().__init__(dataset, size, collate_fn=collate_fn, drop_last=drop_last)
        self.num_workers = whole_number("num_workers", num_workers, 0)
        self.readers = whole_number("readers", readers, 1)
        self.pin_memory = pin_memory
        self._device: Any = None  # where accelerate wants batches to be

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

    def __iter__(self) -> Generator[Any, None, None]:  # type: ignore[override] # a DataLoader's is a class of torch
        self._last = loop = self.stream._begin(self.readers)
        batches = self._batches(loop)
        if not are_recorded():
            return batches
        return self.dataset._channel_work.loop(threads=max(1, self.num_workers)).over(batches)

    def _batches(self, loop: Loop) -> Generator[Any, None, None]:
        # Readers that had ended are started, too: a Pipe's other readers must know of it.
        keep_memory()
        making = _Threads(self, loop.samples)
        try:
            making.start()
            for reader, mark, result in making.results(loop.turn):
                try:
                    batch = result.result()
                finally:  # An error's traceback has this frame, so what holds the error must not be in it.
                    del result
                self._move(loop, reader, partial(loop.samples[reader].state_of, mark))
                if batch is not NOTHING:
                    yield self._placed(batch)
                del batch  # frees it while the next is waited for
            self.stream._end(loop)
        finally:
            # Do not wait here: Python may be finalizing this generator, and would lose a Ctrl-C during the wait.
            making.stop()


class _Threads:
    def __init__(self, loader: ThreadLoader, samples: list[Samples]) -> None:
        self._loader, self._samples, self._dataset = loader, samples, loader.dataset
        self._lists = [self._lists_of(each) for each in samples]
        self._marks = [each.mark() for each in samples]  # after the last list of each reader
        self._made: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in samples]  # by reader, in order
        self._count = max(1, loader.num_workers, len(samples))
        # Batches of each reader that may be read before the loop gets them.
        self._rooms = [max(1, _AHEAD * self._count // len(samples)) + 1] * len(samples)
        self._due: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # readers with room that no thread is reading
        for reader in range(len(samples)):
            self._due.put(reader)
        # Python may finalize a loop, which calls `stop`, in a thread that holds the lock.
        self._lock, self._is_left = threading.RLock(), False
        self.threads: list[threading.Thread] = []
        self.making = set[threading.Thread]()  # those of them that transform or collate
        _loops.add(self)

    def start(self) -> None:
        cores = torch.get_num_threads()
        for number in range(self._count):
            thread = threading.Thread(target=self._run, args=(number, cores), name="loader", daemon=True)
            self.threads.append(thread)
            thread.start()

    def results(self, turn: int) -> Iterator[tuple[int, Mark, Future[Any]]]:
        """Yield each batch's reader, the position after it, and the batch, from the reader whose turn it is."""
        left = [(turn + number) % len(self._samples) for number in range(len(self._samples))]
        while left:
            reader = left.pop(0)
            item = self._made[reader].get()
            if item is not None:
                with self._lock:
                    self._rooms[reader] += 1
                    if self._rooms[reader] == 1 and not self._is_left:
                        self._due.put(reader)
                left.append(reader)
                yield reader, *item
        self.stop()
        for thread in self.threads:  # They have nothing left to do but to pass on what their meters have counted.
            thread.join()

    def stop(self) -> None:
        for samples in self._samples:
            samples.source.leave()
        with self._lock:
            # A thread closes the readers without room, too.
            full = [reader for reader, room in enumerate(self._rooms) if not room and not self._is_left]
            self._is_left = True
            for item in (*full, *(None for _ in self.threads)):
                self._due.put(item)

    def _run(self, number: int, cores: int) -> None:
        """Make the next batch of whichever reader, until the loop is left."""
        if self._is_left:  # A Ctrl-C came while it was started, and Python may be exiting, which does not wait for it.
            return
        _use_one_core(cores)
        meter = self._dataset._channel_work.worker(number) if are_recorded() else None
        while (reader := self._due.get()) is not None:
            if meter is not None:
                meter.begin()
            count = self._make(reader)
            if meter is not None:
                meter.end(count)
        if meter is not None:
            meter.publish()

    def _make(self, reader: int) -> int:
        """Make a batch of a reader's next list, and return the number of its samples; others may read on meanwhile."""
        before, result, found = self._marks[reader], Future[Any](), list[Any]()
        try:
            if found := next(self._lists[reader], found):
                self._marks[reader] = self._samples[reader].mark(at_end=True)
        except BaseException as error:  # noqa: BLE001 - raised where the batches are read
            result.set_exception(error)
        self._made[reader].put((self._marks[reader], result) if found or result.done() else None)
        count = len(found)
        with self._lock:
            is_left = self._is_left
            if count and not is_left:
                self.making.add(threading.current_thread())
                self._rooms[reader] -= 1
                if self._rooms[reader]:
                    self._due.put(reader)
        if is_left:
            self._lists[reader].close()
        elif count:
            try:
                result.set_result(self._batch(found, before, self._samples[reader]))
            except BaseException as error:  # noqa: BLE001 - raised where the batches are read
                result.set_exception(error)
            self.making.discard(threading.current_thread())
        del result  # See `_batches`.
        return count

    def _lists_of(self, samples: Samples) -> Generator[list[Any], None, None]:
        size, batch = self._loader.batch_size, list[Any]()
        with closing(samples):
            items = iter(samples)
            while not self._is_left:
                wanted = min(len(batch) + _STEP, size)
                batch += islice(items, wanted - len(batch))
                is_end = len(batch) < wanted
                if len(batch) == size or (is_end and batch and not self._loader.drop_last):
                    yield batch
                    batch = []
                if is_end:
                    return

    def _batch(self, found: list[Any], before: Mark, samples: Samples) -> Any:
        """Return the batch of a list of samples; NOTHING if all of them are skipped, or the loop was left."""
        make, batch, number = samples.source.maker(), found, 0

        def place() -> str:
            return f"it is number {number + 1} of those from {place_of(before.positions[0])} on"

        if make is not None:
            batch = []
            for number in range(len(found)):
                if self._is_left:
                    return NOTHING
                sample, found[number] = found[number], None  # frees it as soon as it is transformed
                if (sample := make(sample, place)) is not NOTHING:
                    batch.append(sample)
        if not batch:
            return NOTHING
        made = timed_transform(collating(self._loader.collate_fn))(batch)
        return pinned(made) if self._loader.pin_memory and torch.cuda.is_available() else made  # type: ignore[no-untyped-call]


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


_loops: weakref.WeakSet[_Threads] = weakref.WeakSet()


@atexit.register
def _end_loops() -> None:
    """End all loops, and wait for their threads: one that returns from torch while Python exits would abort the process.

    One that makes batches may take long: Python may collect garbage in it, such as a DataLoader's failed loop, and torch then waits
    5 s for each of its workers. One that reads may hang in a system call, in which it does no harm.
    """
    loops = list(_loops)
    for loop in loops:
        loop.stop()
    deadline = exit_deadline()
    for loop in loops:
        for thread in loop.threads:
            if thread.is_alive():  # A Ctrl-C may have come before, or while, it was started.
                thread.join(None if thread in loop.making else max(0.0, deadline - time.monotonic()))
