"""The threads of a ThreadLoader's loop: one for each reader cuts the samples into lists, the others make batches of these."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from sagemaker_channels.epoch.samples import Mark, Samples
from sagemaker_channels.fetching.background import exit_deadline
from sagemaker_channels.fetching.prefetch import end_all
from sagemaker_channels.waits import are_recorded

if TYPE_CHECKING:
    from sagemaker_channels.torch_data.loader import ThreadLoader

_AHEAD = 2  # batches that each thread makes in advance
_STEP = 16  # samples that are read before the next look at whether the loop was left
_LEAVE_SECONDS = 3.0  # for the threads to end; one that waits for a silent FIFO is left behind


class SampleList(NamedTuple):
    """The samples of a batch."""

    samples: list[Any]
    before: Mark
    after: Mark


class Threads:
    """The threads of one loop: one for each reader, and those that make batches."""

    def __init__(self, loader: ThreadLoader, samples: list[Samples]) -> None:
        self._loader, self._samples = loader, samples
        self._stop = threading.Event()
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._made: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in samples]  # by reader, in order
        ahead = max(1, _AHEAD * loader.num_workers // len(samples))
        self._rooms = [threading.Semaphore(ahead + 1) for _ in samples]
        targets = [partial(self._read, number) for number in range(len(samples))]
        targets += [
            partial(self._make, len(samples) + number, torch.get_num_threads()) for number in range(loader.num_workers)
        ]
        for target in targets:
            thread = threading.Thread(target=target, name="loader", daemon=True)
            _threads.add(thread)
            thread.start()

    def results(self, turn: int) -> Iterator[tuple[int, Mark, Future[Any]]]:
        """Yield each batch's reader, the position after it, and the batch, from the reader whose turn it is."""
        left = [(turn + number) % len(self._samples) for number in range(len(self._samples))]
        while left:
            reader = left.pop(0)
            item = self._made[reader].get()
            if item is not None:
                self._rooms[reader].release()
                left.append(reader)
                yield reader, *item

    def stop(self) -> None:
        self._stop.set()
        for samples, room in zip(self._samples, self._rooms, strict=True):
            samples.is_left = True
            room.release()
        for _ in range(self._loader.num_workers):
            self._work.put(None)

    def _read(self, reader: int) -> None:
        """Cut the samples of a reader into lists, and put them up for making."""
        samples, made, last = self._samples[reader], self._made[reader], None
        lists: Any = self._lists(samples)
        if are_recorded():
            lists = self._loader.dataset.shared_work.worker(reader).over(lists, lambda item: len(item.samples))
        try:
            with closing(lists):
                for item in lists:
                    if self._stop.is_set():
                        return
                    result: Future[Any] = Future()
                    made.put((last := item.after, result))
                    self._work.put((result, item, samples))
                    del item
                    self._rooms[reader].acquire()
            made.put(None)
        except BaseException as error:  # noqa: BLE001 - raised where the batches are read
            failed: Future[Any] = Future()
            failed.set_exception(error)
            made.put((last or samples.mark(), failed))
        finally:
            samples.close()

    def _lists(self, samples: Samples) -> Generator[SampleList, None, None]:
        size, before = self._loader.batch_size, samples.mark()
        with closing(samples):
            items = iter(self._loader.dataset.read(samples))
            while batch := self._next(items, size):
                if self._stop.is_set() or (len(batch) < size and self._loader.drop_last):
                    return
                after = samples.mark(at_end=True)
                yield SampleList(batch, before, after)
                del batch
                before = after

    def _next(self, items: Iterator[Any], size: int) -> list[Any]:
        """Return the next samples, fewer at the end or after the loop was left."""
        batch: list[Any] = []
        while not self._stop.is_set():
            wanted = len(batch) + min(_STEP, size - len(batch))
            batch += islice(items, wanted - len(batch))
            if len(batch) < wanted or wanted == size:
                break
        return batch

    def _make(self, number: int, cores: int) -> None:
        """Make batches of the next lists, of whichever reader."""
        _use_one_core(cores)
        meter = self._loader.dataset.shared_work.worker(number) if are_recorded() else None
        while (work := self._work.get()) is not None and not self._stop.is_set():
            result, item, samples = work
            is_counted = meter is not None and not meter.rests()
            try:
                result.set_result(self._loader.made(item, samples, self._stop))
            except BaseException as error:  # noqa: BLE001 - raised where the batches are read
                result.set_exception(error)
            if meter is not None and is_counted:
                meter.stop(0)
            del work, result, item
        if meter is not None:
            meter.publish()


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


_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _join_threads() -> None:
    """Wait a moment for threads to end: one that returns from torch while Python exits would abort the process."""
    end_all()  # else those that wait for a silent store would end only after the wait
    deadline = min(time.monotonic() + _LEAVE_SECONDS, exit_deadline())
    for thread in list(_threads):
        if thread.is_alive():  # A Ctrl-C may have come before it was started.
            thread.join(max(0.0, deadline - time.monotonic()))
