"""Loaders that know their position, that of their readers after the batch that the loop got last: their base, and WorkerLoader.

WorkerLoader is a DataLoader whose workers make whole batches, and send with each where they are after it.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from sagemaker_channels.epoch.states import State
from sagemaker_channels.errors import ChannelError, expect, whole_number
from sagemaker_channels.torch_data import frameworks
from sagemaker_channels.torch_data.epochs import Loop
from sagemaker_channels.torch_data.shared_tensors import collating, sendable
from sagemaker_channels.torch_data.stream_dataset import StreamDataset


class PositionedLoader(DataLoader[Any]):
    """A loader of a dataset that knows its position. `stream` is the dataset, of which `readers` make batches in turns."""

    stream: StreamDataset
    readers: int
    _last: Loop | None = None  # the last loop

    def _read_by(self, dataset: Any, batch_size: Any, collate_fn: Any, *, drop_last: bool) -> int:
        """Return the batch size. Raises TypeError unless the dataset has readers and states, and `collate_fn` is a function."""
        expect(callable(collate_fn), "collate_fn", collate_fn, "a function of a list of samples, such as list")
        if not isinstance(dataset, StreamDataset) or type(dataset).__iter__ is not StreamDataset.__iter__:
            own = " with an __iter__ of its own" if isinstance(dataset, StreamDataset) else ""
            raise TypeError(
                f"a {type(self).__name__} needs a ChannelDataset or a MixedDataset, not a {type(dataset).__name__}{own}; use"
                " torch's DataLoader, or a ChannelDataset of the same channel, with a transform and filters"
            )
        self.stream, self._drops_last, self._size = dataset, drop_last, whole_number("batch_size", batch_size, 1)
        return self._size

    def __len__(self) -> int:
        """The number of batches in the next epoch. Raises TypeError with the reason if no index has that of the samples."""
        return self.stream._batches(self._size, self.readers, drop_last=self._drops_last)

    def __bool__(self) -> bool:
        return True  # without counting

    def __getstate__(self) -> State:
        return {**self.__dict__, "_last": None, "_iterator": None}  # A running iteration is not copied.

    @property
    def drop_last(self) -> bool:
        """Whether each reader drops its incomplete last batch. Raises ChannelError if accelerate shall skip the first batches."""
        frameworks.check_not_skipped()
        return self._drops_last

    @drop_last.setter
    def drop_last(self, _: bool) -> None:
        """Do nothing: a DataLoader sets that of the loader below a WorkerLoader."""

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the dataset's next iteration, from 0."""
        self.stream.set_epoch(epoch)

    def state_dict(self) -> State:
        """Return the position of the last iteration: after the batch that it yielded last."""
        return self.stream._position_of(self._last, self.readers)

    def _move(self, loop: Loop, reader: int, state: Callable[[], State]) -> None:
        """Record where a reader is after its batch, which the loop gets now. Raises ChannelError if a state was loaded since."""
        self.stream._epochs.check(loop)
        loop.move(reader, state)

    def load_state_dict(self, state: State) -> None:
        """Continue at a state of any loader or dataset, or at the merged one of all ranks, with the next iteration.

        After a finished epoch of all ranks the next one follows; a rank that has finished its own part yields no batch.

        Raises:
            ChannelError: It is no state of ours.
        """
        self.stream.load_state_dict(state)


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
    _iterator: Any  # torch's, which stays over an epoch if workers do
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
        is_kept = how.get("persistent_workers", False)
        batches = _Batches(dataset, size, collating(collate_fn), drops_last=drop_last, is_kept=is_kept)
        super().__init__(batches, None, collate_fn=_as_it_is, **how)
        self.readers = max(1, self.num_workers)

    def __iter__(self) -> Generator[Any, None, None]:  # type: ignore[override] # a DataLoader's is a class of torch
        self._last = loop = self.stream._begin(self.readers)
        are_alive = all(worker.is_alive() for worker in getattr(self._iterator, "_workers", ()))
        if loop.state is not None or self.dataset.state is not None or not are_alive:
            self._iterator = None  # Workers that stayed over an epoch do not know of it, or one of them was killed.
        self.dataset.state, self.dataset.turn = loop.state, loop.turn
        return self._loop(loop)

    def _loop(self, loop: Loop) -> Generator[Any, None, None]:
        for made in super().__iter__():
            if isinstance(made, ChannelError):
                try:
                    raise made
                finally:
                    del made  # Its traceback has this frame: that circle would keep the dataset and the workers.
            reader, state, batch = made
            self._move(loop, reader, partial(_as_it_is, state))
            del made
            yield batch
            del batch
        self.stream._end(loop)


class _Batches(IterableDataset[Any]):
    """What a worker makes: its number, its position and a batch, or an error of ours at the end."""

    dataset: StreamDataset
    turn: int  # the reader of the first batch

    def __init__(
        self, dataset: StreamDataset, size: int, collate: Callable[..., Any], *, drops_last: bool, is_kept: bool
    ) -> None:
        own = {"_size": size, "_collate": collate, "_drops_last": drops_last, "_is_kept": is_kept}
        self.__dict__.update(dataset=dataset, state=None, turn=0, **own)

    def __getstate__(self) -> dict[str, Any]:
        frameworks.check_sent(self._collate)
        return self.__dict__

    def __getattr__(self, name: str) -> Any:
        """Return what the loader's own dataset has, such as its epoch; DataLoader's `dataset` is this one."""
        if name == "dataset" or name.startswith("__"):  # while it is unpickled; __getstate__, in Python 3.10
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what is not of this one in the loader's own dataset, such as the transform; a worker_init_fn may do so, too."""
        if name in self.__dict__:
            self.__dict__[name] = value
        else:
            setattr(self.dataset, name, value)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._positioned()
        except ChannelError as error:  # A DataLoader would raise it again from its text, without its attributes.
            yield error

    def _positioned(self) -> Iterator[Any]:
        info = get_worker_info()
        number, readers = (info.id, info.num_workers) if info else (0, 1)
        if info and self._is_kept:
            # A notebook's interrupt goes to all processes, and would end a worker, or let it wait forever for a lock of its own.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        reader = (number + self.turn) % readers  # a DataLoader begins with worker 0
        samples = self.dataset._reader_samples(reader, readers)
        if self.state is not None and self.state["epoch"] == samples.epoch:
            samples.load_state_dict(self.state)
        with closing(samples):
            made = self.dataset._finished(samples)
            while batch := list(islice(made, self._size)):
                if len(batch) == self._size or not self._drops_last:
                    yield reader, samples.state_of(samples.mark(at_end=True)), sendable(self._collate(batch))
                del batch


def _as_it_is(item: Any) -> Any:
    return item
