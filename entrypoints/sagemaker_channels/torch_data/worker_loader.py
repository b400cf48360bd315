"""A DataLoader with a position: its workers make whole batches, and send with each where they are after it."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, default_collate, get_worker_info

from sagemaker_channels.epoch.states import State
from sagemaker_channels.torch_data.positions import PositionedLoader
from sagemaker_channels.torch_data.shared_tensors import collating, sendable
from sagemaker_channels.torch_data.stream_dataset import StreamDataset


class WorkerLoader(PositionedLoader):
    """Batches of a dataset, made by worker processes, in whose middle a job can be resumed; one epoch per iteration.

    Transforms in pure Python are faster in processes than in a ThreadLoader's threads. A plain DataLoader reads the same, but does
    not know its position.

    Args:
        dataset: A ChannelDataset or MixedDataset.
        batch_size: Samples per batch.
        collate_fn: A function that makes a batch from a list of samples.
        drop_last: Whether to drop each worker's incomplete last batch.
        how: Other arguments of DataLoader, such as num_workers and pin_memory.

    Raises:
        TypeError: The dataset is of another kind, or `collate_fn` is not a function.
        ValueError: `batch_size` is not a whole number from 1 on.
    """

    dataset: Any
    _is_accelerate_prepared = True  # accelerate's mark of a loader that it leaves as it is; batches stay on the CPU

    def __init__(
        self,
        dataset: StreamDataset,
        batch_size: int = 1,
        *,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        drop_last: bool = False,
        **how: Any,
    ) -> None:
        size = self._read_by(dataset, batch_size, collate_fn, drop_last=drop_last)
        batches = _Batches(dataset, size, collating(collate_fn), drops_last=drop_last)
        super().__init__(batches, None, collate_fn=_as_it_is, **how)
        self.readers = max(1, self.num_workers)

    def __iter__(self) -> Generator[Any, None, None]:  # type: ignore[override] # a DataLoader's is a class of torch
        loop, _, end = self._begin()
        if loop.state is not None or self.dataset.state is not None:
            self._iterator = None  # Workers that stayed over an epoch do not know of it.
        self.dataset.state, self.dataset.turn = loop.state, self.turn
        return self._loop(end)

    def _loop(self, end: Callable[[], object]) -> Generator[Any, None, None]:
        for reader, state, batch in super().__iter__():
            self._move(reader, partial(_as_it_is, state))
            yield batch
            del batch
        end()


class _Batches(IterableDataset[Any]):
    """What a worker makes: its number, its position, and a batch."""

    def __init__(self, dataset: StreamDataset, size: int, collate: Callable[..., Any], *, drops_last: bool) -> None:
        self.dataset, self._size, self._collate, self._drops_last = dataset, size, collate, drops_last
        self.shared_work = dataset.shared_work  # for `timed`
        self.state: State | None = None
        self.turn = 0  # the reader of the first batch

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        number, readers = (info.id, info.num_workers) if info else (0, 1)
        reader = (number + self.turn) % readers  # a DataLoader begins with worker 0
        samples = self.dataset.samples(reader, readers)
        if self.state is not None and self.state["epoch"] == samples.epoch:
            samples.load_state_dict(self.state)
        with closing(samples):
            made = self.dataset.over(samples)
            while batch := list(islice(made, self._size)):
                if len(batch) == self._size or not self._drops_last:
                    yield reader, samples.state_dict(at_end=True), sendable(self._collate(batch))
                del batch


def _as_it_is(item: Any) -> Any:
    return item
