"""Channels as PyTorch's iterable datasets, in every input mode; `map` has those with random access.

    loader = DataLoader(ChannelDataset("train", transform=decode), batch_size=32, num_workers=4)
    for epoch in range(5):
        loader.dataset.set_epoch(epoch)
        with uneven_ranks(model):
            for batch in loader: ...

A stream's length is unknown and ranks can get unequal parts of it, so DistributedSampler and drop_last do not help, and DDP would
wait forever for the rank that has run out. No sample is dropped or repeated; `uneven_ranks` lets ranks finish at different times.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import torch
import torch.distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset, get_worker_info

from entrypoints.errors import ChannelError, expect, is_count, whole_number
from entrypoints.fetching.agreement import compare_by
from entrypoints.fetching.shared_listing import job, join_job
from entrypoints.fetching.silence import warn_once
from entrypoints.job.environment import Environment
from entrypoints.order.samples import Samples
from entrypoints.order.sampling import Reading, State
from entrypoints.order.sharding import Placement, placement_of_rank
from entrypoints.sample import Sample
from entrypoints.samples.channel import (
    check_how,
    default_shard,
    find_channel,
    known_environment,
    open_channel,
    placement_of,
)
from entrypoints.samples.mixing import Mixture
from entrypoints.samples.transformed import transformed
from entrypoints.torch_data.agreement import exchange
from entrypoints.torch_data.epoch_counter import Epochs
from entrypoints.torch_data.shared_memory import shared
from entrypoints.torch_data.shared_work import SharedWork
from entrypoints.waits import are_recorded, timed_transform

Transform = Callable[[Sample], Any]


class StreamDataset(IterableDataset[Any]):
    """Epochs and states of ChannelDataset and MixedDataset.

    `state_dict` and `load_state_dict` are those of torchdata: a StatefulDataLoader with as many workers as before resumes in the
    middle of an epoch. Without workers they work with a plain DataLoader, too. A state of `merge_states` is loaded into the
    dataset, for any loader and number of workers. A state from the end of an epoch resumes with the next one, unless `set_epoch`
    sets another.
    """

    transform: Transform | None = None  # for the samples that `samples` returns
    placement: Placement

    def __init__(self, sources: Sequence[tuple[str, str]], environment: Environment) -> None:
        self._epochs = Epochs()
        self.shared_work = SharedWork(sources, environment)
        self._current: Samples | Mixture | None = None
        self._resumed: State | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, from 0; under Pipe each has its own FIFO. Raises ValueError for other values."""
        self._epochs.set(whole_number("epoch", epoch, 0))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._epochs.next(self.placement.world_size == 1)

    @property
    def restarts_epoch(self) -> bool:
        """Whether a state from the middle of an epoch resumes at its beginning, because its order cannot be repeated."""
        return False

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Samples | Mixture:
        """Return the samples of one of this rank's workers, before the transform; in the next epoch unless one is given."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        resumed, self._resumed = self._resumed, None
        if resumed is not None and "merged" in resumed and not self._epochs.take(worker):
            resumed = None  # a copy of a state from which this worker has resumed already
        is_own = resumed is not None and info is not None and "merged" not in resumed
        epoch = resumed["epoch"] if resumed is not None and is_own else self.epoch
        self._current = samples = self.samples(worker, workers, epoch)
        if resumed is not None and resumed["epoch"] == epoch:
            samples.load_state_dict(resumed)
            if is_own:
                self._epochs.resume(worker, epoch)
            elif samples.finished and self.placement.local_world_size > 1:
                # Other readers of a Pipe wait until this shard connects, too, and a StatefulDataLoader may request no sample.
                next(samples, None)
            return self._resume(samples, worker, workers)
        if self._epochs.is_over(epoch, worker, workers):
            samples.finish()
            self._epochs.skip(worker)
        return self._transformed(samples)

    def _resume(self, samples: Samples | Mixture, worker: int, workers: int) -> Generator[Any, None, None]:
        if self._epochs.has_finished(samples.epoch, workers) and self.placement.local_world_size == 1:
            samples.finish()  # With several ranks it is read: that lets a Pipe's other readers know that this shard is finished.
        with closing(self._transformed(samples)) as transformed:
            for sample in transformed:
                self._epochs.begin(worker, samples.epoch)
                yield sample
                break
            yield from transformed

    def _transformed(self, samples: Samples | Mixture) -> Generator[Any, None, None]:
        """Yield the transformed samples, and record how long the loop waits for them."""
        plain = self._untimed(samples)
        if not are_recorded():
            return plain
        meter, finish = self.shared_work.meter()
        return meter.over(plain, finish=finish)

    def _untimed(self, samples: Samples | Mixture) -> Generator[Any, None, None]:
        transform, is_worker = timed_transform(self.transform), get_worker_info() is not None
        with closing(samples):
            found = samples if transform is None or isinstance(samples, Mixture) else transformed(samples, transform)
            yield from map(shared, found) if is_worker else found

    def __getstate__(self) -> State:
        # A running iteration is not copied: the copy restarts the epoch.
        return {**self.__dict__, "_current": None}

    def state_dict(self) -> State:
        """Return the position of this process's last iteration, from which a dataset that loads it resumes."""
        # set_epoch may have set another epoch meanwhile, which has not begun; a worker's state is taken during its iteration.
        if self._resumed is not None and self._resumed["epoch"] == self.epoch:
            return self._resumed
        info = get_worker_info()
        if self._current is not None and (self._current.epoch == self.epoch or info is not None):
            if info is not None:
                self._epochs.note_state(info.id, self._current.finished)
            return self._current.state_dict()
        return {"epoch": self.epoch}

    def load_state_dict(self, state: State) -> None:
        """Resume at a state with the next iteration; after a finished epoch with the next epoch.

        Raises:
            ChannelError: It is not a dataset's state.
        """
        _check(state)
        info, finished = get_worker_info(), bool(state.get("finished"))
        if self.restarts_epoch and not finished and info is None:
            warn_once(
                "SageMaker shuffles this Pipe differently in each job, so the epoch of the state begins again; to resume in its"
                " middle, remove shuffle_config and use Reading(seed=...)"
            )
        if info is None:
            self._epochs.forget_states()
            self._epochs.offer()
        if finished or (info is not None and "version" in state):
            self._epochs.load(info.id if info else 0, state["epoch"], finished)
        else:
            self.set_epoch(state["epoch"])
        self._resumed = state if "version" in state else None


class ChannelDataset(StreamDataset):
    """A rank's samples of a channel, divided among its DataLoader workers; each once per epoch.

    Create it after the torch process group, if torchrun's variables do not describe that.

    Args:
        channel: The channel's name.
        format: Like open_channel's.
        transform: A function of a sample, called in the worker that read it; it must pickle if workers are started by spawn.
        reading: Order and cache.
        environment: The job; this container's if not given.

    Raises:
        ChannelError: The job has no such channel. Iterating raises what open_channel raises.
        TypeError: An argument is of the wrong type.
    """

    def __init__(
        self,
        channel: str,
        format: str | None = None,
        transform: Transform | None = None,
        *,
        reading: Reading | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.environment = known_environment(environment)
        self.channel = find_channel(self.environment, channel)
        super().__init__([(channel, self.channel.mode)], self.environment)
        check_how(format, reading)
        expect(transform is None or callable(transform), "transform", transform, "a function of a sample")
        self._format = format
        self.transform = transform
        self._reading = reading
        self.placement = _placement(self.environment)
        self._job = job()  # Its workers read the same listing.

    @property
    def restarts_epoch(self) -> bool:
        return self.channel.shuffled

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Samples:
        join_job(self._job)
        compare_by(exchange)
        shard = default_shard(self.channel, self.placement, worker, workers)
        return open_channel(
            self.channel.name,
            self.epoch if epoch is None else epoch,
            self._format,
            environment=self.environment,
            shard=shard,
            reading=self._reading,
        )


def uneven_ranks(model: torch.nn.Module) -> AbstractContextManager[Any]:
    """Return a context for an epoch's loop in which ranks may run out of batches at different times.

    A rank of a DistributedDataParallel model that has run out, or has no batch at all, keeps answering the others' collective calls
    (torch's Join); other models need nothing. Make your own collective calls after the block, when every rank has left it.
    """
    if isinstance(model, DistributedDataParallel):
        return Join([model])
    return nullcontext()


def foreign_state(state: Any) -> str | None:
    """Return, in words, what a state is that comes neither from a dataset nor from a ThreadLoader; else None."""
    known = state if isinstance(state, dict) else {}
    if "_snapshot" in known or "_num_yielded" in known:
        return "a StatefulDataLoader's: load it there, or merge it"
    if not is_count(known.get("epoch")):
        return f"{', '.join(map(repr, known)) or repr(state):.100}, without an epoch"
    return None


def _check(state: Any) -> None:
    """Refuse a ThreadLoader's state, too: its epoch alone would restart the epoch and repeat samples."""
    what = foreign_state(state) or ("a ThreadLoader's: load it there, or merge it" if "threads" in state else None)
    if what is not None:
        raise ChannelError(
            f"a dataset resumes only from a dataset's state_dict(), or from merge_states(); this is {what}; or restart the epoch"
        )


def _placement(environment: Environment) -> Placement:
    """This process's placement; by the process group if there is one, since not all ranks are started by torchrun."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        return placement_of_rank(rank, world_size, len(environment.hosts), os.environ)
    return placement_of(environment)
