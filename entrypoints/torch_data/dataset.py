"""Channels as PyTorch datasets.

`ChannelDataset` streams, whatever the mode; the map-style ones (`torch_map`) give random access where the way of arriving can:

    loader = DataLoader(ChannelDataset("train", transform=decode), batch_size=32, num_workers=4)
    for epoch in range(5):
        loader.dataset.set_epoch(epoch)
        with uneven_ranks(model):
            for batch in loader: ...

A stream's length is not known and ranks can get unequal parts of it, so DistributedSampler and drop_last do not help: DDP
would wait forever for the rank that has run out. Nothing is dropped or repeated to even that out; `uneven_ranks` lets
ranks finish at different times.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import torch
import torch.distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset, get_worker_info

from entrypoints.errors import ChannelError, expect, is_count, whole_number
from entrypoints.fetching.listing import job, join_job
from entrypoints.job.environment import Environment
from entrypoints.order.sampling import Reading, Samples, State
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
from entrypoints.samples.error_notes import add_sample_note
from entrypoints.samples.mixing import Mixture, known_weights
from entrypoints.torch_data.epochs import Epochs
from entrypoints.torch_data.shared_memory import shared

Transform = Callable[[Sample], Any]


class StreamDataset(IterableDataset[Any]):
    """What ChannelDataset and MixedDataset share: epochs, and where an iteration stands.

    `state_dict` and `load_state_dict` are torchdata's: a StatefulDataLoader over this dataset goes on in the middle of an
    epoch, with as many workers as before. With a plain DataLoader they do so where num_workers is 0. Of an epoch that was read
    to its end nothing is left: the next one is whole, and it is the next iteration's unless `set_epoch` says otherwise.
    """

    transform: Transform | None = None  # still to be applied to what `samples` gives
    placement: Placement

    def __init__(self) -> None:
        self._epochs = Epochs()
        self._current: Samples | Mixture | None = None
        self._resumed: State | None = None

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is, counting from 0; under Pipe each has its own FIFO; else ValueError."""
        self._epochs.tell(whole_number("epoch", epoch, 0))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._epochs.next(self.placement.world_size == 1)

    @property
    def restarts_epoch(self) -> bool:
        """Whether the middle of an epoch cannot be found again, so that a state of it is that of its beginning."""
        return False

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Samples | Mixture:
        """What one worker (of `workers`) of this rank reads in this epoch or another, before the transform."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        resumed, self._resumed = self._resumed, None
        epoch = resumed["epoch"] if resumed is not None and info is not None else self.epoch
        self._current = samples = self.samples(worker, workers, epoch)
        if resumed is not None and resumed["epoch"] == epoch:
            samples.load_state_dict(resumed)
            if info is not None:
                self._epochs.go_on(worker, epoch)
            elif samples.finished and self.placement.local_world_size > 1:
                # Those who share a Pipe wait until this shard has come, too, and a StatefulDataLoader may ask for nothing.
                next(samples, None)
            return self._going_on(samples, worker, workers)
        if self._epochs.is_over(epoch, worker, workers):
            samples.finish()
            self._epochs.pass_over(worker)
        return self._given(samples)

    def _going_on(self, samples: Samples | Mixture, worker: int, workers: int) -> Generator[Any, None, None]:
        if self._epochs.has_finished(samples.epoch, workers) and self.placement.local_world_size == 1:
            samples.finish()  # else those who go on with a Pipe have to be told not to wait for this shard, which reading does
        with closing(self._given(samples)) as given:
            for sample in given:
                self._epochs.give(worker, samples.epoch)
                yield sample
                break
            yield from given

    def _given(self, samples: Samples | Mixture) -> Generator[Any, None, None]:
        transform, is_worker = self.transform, get_worker_info() is not None
        with closing(samples):
            if isinstance(samples, Mixture) or transform is None:
                yield from map(shared, samples) if is_worker else samples
                return
            sample = None
            try:
                for sample in samples:
                    sample = transform(sample)  # under one name, so that of the two only one is held
                    yield shared(sample) if is_worker else sample
                    sample = None  # not while the next is read
            except Exception as error:
                if sample is not None:
                    add_sample_note(error, sample, samples)
                raise

    def __getstate__(self) -> State:
        # An iteration that is under way does not travel: a copy begins anew, in the same epoch.
        return {**self.__dict__, "_current": None}

    def state_dict(self) -> State:
        """Where the iteration that began last stands, in this process: the next iteration of one that loads it goes on there."""
        # The epoch may be another by now, and that one has not begun: but not for a worker, which is asked in its iteration.
        if self._resumed is not None and self._resumed["epoch"] == self.epoch:
            return self._resumed
        info = get_worker_info()
        if self._current is not None and (self._current.epoch == self.epoch or info is not None):
            if info is not None:
                self._epochs.ask_state(info.id, self._current.finished)
            return self._current.state_dict()
        return {"epoch": self.epoch}

    def load_state_dict(self, state: State) -> None:
        """Lets the next iteration go on where `state` says, in its epoch; or, where that is finished, with the next one.

        Raises ChannelError for what no dataset gave.
        """
        _check(state)
        info, finished = get_worker_info(), bool(state.get("finished"))
        if info is None:
            self._epochs.forget_states()
        if finished or (info is not None and "version" in state):
            self._epochs.load(info.id if info else 0, state["epoch"], finished)
        else:
            self.set_epoch(state["epoch"])
        self._resumed = state if "version" in state else None


class ChannelDataset(StreamDataset):
    """The samples of a channel that belong to this rank, divided among its DataLoader workers; each once per epoch.

    `format` is as open_channel's. `transform` is applied to each sample in the worker that read it; it must pickle where
    workers are started by spawn. `reading` shuffles, and keeps objects for the next epochs. Create it after the process group,
    if there is one that torchrun's variables do not describe. Raises ChannelError for an unknown channel and TypeError
    at once, the rest when iterated.
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
        super().__init__()
        self._environment = known_environment(environment)
        self.channel = find_channel(self._environment, channel)
        check_how(format, reading)
        expect(transform is None or callable(transform), "transform", transform, "a function of a sample")
        self._format = format
        self.transform = transform
        self._reading = reading
        self.placement = _placement(self._environment)
        self._job = job()  # so that its workers read the same listing

    @property
    def restarts_epoch(self) -> bool:
        """See StreamDataset."""
        return self.channel.shuffled

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Samples:
        """See StreamDataset."""
        join_job(self._job)
        shard = default_shard(self.channel, self.placement, worker, workers)
        return open_channel(
            self.channel.name,
            self.epoch if epoch is None else epoch,
            self._format,
            environment=self._environment,
            shard=shard,
            reading=self._reading,
        )


class MixedDataset(StreamDataset):
    """Samples of several channels, drawn by weight; each of this rank's once per epoch, by its own channel's transform.

    Where a channel has ended the others go on, or, with `stop_at_first`, the epoch ends. The same seed draws the same.
    """

    def __init__(self, parts: Mapping[ChannelDataset, float], *, seed: int = 0, stop_at_first: bool = False) -> None:
        super().__init__()
        expect(isinstance(parts, Mapping), "parts", parts, "the datasets with their weights: {train: 3.0, extra: 1.0}")
        if not all(isinstance(part, ChannelDataset) for part in parts):
            raise TypeError(
                f"a mixture is of ChannelDatasets, not of {', '.join(type(part).__name__ for part in parts)}"
            )
        self._parts, self._weights = list(parts), known_weights(parts.values())
        self._seed, self._stop_at_first = seed, stop_at_first
        self.placement = self._parts[0].placement

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Mixture:
        """See StreamDataset."""
        epoch = self.epoch if epoch is None else epoch
        pipes = [part.channel.name for part in self._parts if part.channel.mode == "Pipe"]
        if pipes and default_shard(self._parts[0].channel, self.placement, worker, workers).readers > 1:
            raise ChannelError(
                f"channel {pipes[0]!r}: a Pipe that is mixed has one reader a host, since its readers draw at different times and"
                " would wait for each other; use one rank a host and num_workers 0 or 1, or input_mode: FastFile"
            )
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else os.environ.get("RANK", 0)
        return Mixture(
            [part.samples(worker, workers, epoch) for part in self._parts],
            self._weights,
            seed=f"{self._seed}/{epoch}/{rank}/{worker}/{workers}",
            transforms=[part.transform for part in self._parts],
            stop_at_first=self._stop_at_first,
        )


def uneven_ranks(model: torch.nn.Module) -> AbstractContextManager[Any]:
    """Around an epoch's loop: ranks of a DistributedDataParallel model may run out of batches at different times.

    A rank that is done goes on answering the others' collective calls (torch's Join), also one that has no batch at
    all; other models need nothing. Collective calls of one's own belong after the block: every rank is there then.
    """
    if isinstance(model, DistributedDataParallel):
        return Join([model])
    return nullcontext()


def foreign(state: Any) -> str | None:
    """What a state is that neither a dataset nor a ThreadLoader gave, in words; else None."""
    known = state if isinstance(state, dict) else {}
    if "_snapshot" in known or "_num_yielded" in known:
        return "a StatefulDataLoader's: load it there"
    if not is_count(known.get("epoch")):
        return f"{', '.join(map(repr, known)) or repr(state):.100}, which names no epoch"
    return None


def _check(state: Any) -> None:
    """A ThreadLoader's state names an epoch, too: taken for one of its beginning, samples would come twice."""
    what = foreign(state) or ("a ThreadLoader's: load it there" if "threads" in state else None)
    if what is not None:
        raise ChannelError(
            f"a dataset goes on with what a dataset's state_dict() gave; this is {what}; or begin the epoch anew"
        )


def _placement(environment: Environment) -> Placement:
    """This process's placement, by the process group where there is one: not everyone starts ranks with torchrun."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        return placement_of_rank(rank, world_size, len(environment.hosts), os.environ)
    return placement_of(environment)
