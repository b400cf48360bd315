"""Batches without worker processes: a thread reads, others transform and collate.

A DataLoader's workers send each batch through a queue between processes, at some 750 MB/s per worker on a small machine. Image
decoders, torch and numpy release the GIL, so threads do the same work in parallel and pass only references. Transforms in pure
Python are faster in processes (worker_loader.py).

One thread cuts the samples into lists of a batch each, in their order; whichever thread is free makes a batch of the next one. So
batches do not depend on the threads' number or speed, and these are no part of a state.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from sagemaker_channels.epoch.samples import Mark, Samples, place_of
from sagemaker_channels.epoch.transformed import NOTHING
from sagemaker_channels.errors import expect, whole_number
from sagemaker_channels.torch_data.batch_memory import keep_memory
from sagemaker_channels.torch_data.positions import PositionedLoader, check_dataset
from sagemaker_channels.torch_data.shared_tensors import collating
from sagemaker_channels.torch_data.stream_dataset import StreamDataset
from sagemaker_channels.torch_data.threads import SampleList, Threads
from sagemaker_channels.waits import are_recorded, timed_transform


class ThreadLoader(PositionedLoader):
    """Batches of a dataset, made by threads of this process; one epoch per iteration.

    It has a DataLoader's attributes, with the threads as `num_workers`. accelerate, Fabric and Lightning take it as a DataLoader;
    none of them divides its batches, since each rank has its own. An error is raised in place of its batch. Leaving the loop early
    ends the threads. Its loops record their waits (waits.py).

    Args:
        dataset: A ChannelDataset or MixedDataset.
        batch_size: Samples per batch; fewer, if damaged ones are skipped.
        num_workers: Threads that transform and collate.
        readers: Parts of the rank's samples that are read at the same time, by turns: for formats that take long to read (gzip,
            Parquet). States are of as many.
        collate_fn: A function that makes a batch from a list of samples.
        drop_last: Whether to drop each reader's incomplete last batch.
        pin_memory: Whether to copy tensors to pinned memory, from which they are copied to a GPU faster.

    Raises:
        TypeError: The dataset is of another kind, or `collate_fn` is not a function.
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
        num_workers: int = 4,
        readers: int = 1,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        drop_last: bool = False,
        pin_memory: bool = False,
    ) -> None:
        check_dataset(dataset, "ThreadLoader")
        expect(callable(collate_fn), "collate_fn", collate_fn, "a function of a list of samples, such as list")
        super().__init__(dataset, whole_number("batch_size", batch_size, 1), collate_fn=collate_fn, drop_last=drop_last)
        self.num_workers = whole_number("num_workers", num_workers, 1)
        self.pin_memory = pin_memory
        self._device: Any = None  # where accelerate wants batches to be
        self._read_by(dataset, self.batch_size, whole_number("readers", readers, 1), drops_last=drop_last)

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

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # a DataLoader's is a class of torch
        _, samples, end = self._begin()
        batches = self._batches(samples, end)
        if not are_recorded():
            return batches
        return self.dataset.shared_work.loop(threads=self.num_workers).over(batches)

    def _batches(self, samples: list[Samples], end: Callable[[], object]) -> Generator[Any, None, None]:
        # Readers that had ended are started, too: a Pipe's other readers must know of it.
        keep_memory()
        making = Threads(self, samples)
        try:
            for reader, mark, result in making.results(self.turn):
                batch = result.result()
                del result
                self._move(reader, partial(samples[reader].state_of, mark))
                if batch is not NOTHING:
                    yield self._placed(batch)
                del batch  # frees it while the next is waited for
            end()
        finally:
            # Do not wait here: Python may be finalizing this generator, and would lose a Ctrl-C during the wait.
            making.stop()

    def made(self, item: SampleList, samples: Samples, stop: threading.Event) -> Any:
        """Return the batch of a list of samples; NOTHING if all of them are skipped, or the loop was left."""
        make, batch = self.dataset.maker(samples), item.samples
        if make is not None:
            batch, found, place = [], item.samples, _Place(item.before)
            for number in range(len(found)):
                if stop.is_set():
                    return NOTHING
                sample, found[number] = found[number], None  # frees it as soon as it is transformed
                place.number = number
                if (sample := make(sample, place)) is not NOTHING:
                    batch.append(sample)
        return self._collated(batch) if batch else NOTHING

    def _collated(self, batch: list[Any]) -> Any:
        made = timed_transform(collating(self.collate_fn))(batch)
        return pinned(made) if self.pin_memory and torch.accelerator.is_available() else made  # type: ignore[no-untyped-call]


class _Place:
    """Where a sample of a batch is, in words; one for all of them, since a function for each would be noticeable."""

    __slots__ = ("before", "number")

    def __init__(self, before: Mark) -> None:
        self.before, self.number = before, 0

    def __call__(self) -> str:
        return f"it is sample {self.number + 1} after the one of which {place_of(self.before.positions[0])}"
