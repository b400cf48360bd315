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
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import torch
import torch.distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset, get_worker_info

from entrypoints.errors import expect, whole_number
from entrypoints.fetching.agreement import compare_by
from entrypoints.fetching.shared_listing import job, join_job
from entrypoints.fetching.silence import warn_once
from entrypoints.job.environment import Environment
from entrypoints.order.iterations import Iterations, check_state
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

    def __init__(self, sources: Sequence[tuple[str, str]], environment: Environment, placement: Placement) -> None:
        self.placement = placement
        self.shared_work = SharedWork(sources, environment)
        self.iterations = Iterations(self.shared_work.cells, placement.world_size == 1)
        self._current: Samples | Mixture | None = None  # of the iteration that began last
        self._unread: Samples | Mixture | None = None  # these until it reads
        self._counted: Samples | Mixture | None = None  # by `len`, for the next iteration, which lists nothing again

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, from 0; under Pipe each has its own FIFO. Raises ValueError for other values."""
        self.iterations.set_epoch(whole_number("epoch", epoch, 0))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self.iterations.epoch

    @property
    def restarts_epoch(self) -> bool:
        """Whether a state from the middle of an epoch resumes at its beginning, because its order cannot be repeated."""
        return False

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Samples | Mixture:
        """Return the samples of one of this rank's workers, before the transform; in the next epoch unless one is given."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of this rank's samples in the next epoch. Raises TypeError with the reason if no index has it."""
        # Each worker may add an incomplete batch to a DataLoader's estimate, which warns at that.
        warnings.filterwarnings("ignore", rf"Length of IterableDataset <{re.escape(type(self).__module__)}")
        known = self._unread or self._counted  # `list` calls this after the iteration has begun, before it reads
        if known is None or known.epoch != self.epoch:
            known = self._counted = self.samples()
        return known.counted()

    def __bool__(self) -> bool:
        return True  # without counting

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        begin = self.iterations.begin(worker, workers)
        counted, self._counted = self._counted, None
        if counted is None or info is not None or counted.epoch != begin.epoch:
            counted = self.samples(worker, workers, begin.epoch)
        self._current = self._unread = samples = counted
        if begin.state is not None:
            samples.load_state_dict(begin.state)
            if samples.finished and self.placement.local_world_size > 1:
                # Other readers of a Pipe wait until this shard connects, too, and a StatefulDataLoader may request no sample.
                next(samples, None)
            return self._resumed(samples, worker)
        if begin.is_over:
            samples.finish()
        return self._transformed(samples)

    def _resumed(self, samples: Samples | Mixture, worker: int) -> Generator[Any, None, None]:
        if self.placement.local_world_size == 1 and self.iterations.are_finished():
            samples.finish()  # A process that reads a Pipe for several readers would wait for its next FIFO.
        with closing(self._transformed(samples)) as transformed:
            for sample in transformed:
                self.iterations.move("yield", worker)
                yield sample
                break
            yield from transformed
        self.iterations.move("end", worker)

    def _transformed(self, samples: Samples | Mixture) -> Generator[Any, None, None]:
        """Yield the transformed samples, and record how long the loop waits for them."""
        plain = self._untimed(samples)
        if not are_recorded():
            return plain
        meter, finish = self.shared_work.meter()
        return meter.over(plain, finish=finish)

    def _untimed(self, samples: Samples | Mixture) -> Generator[Any, None, None]:
        self._unread = None
        with closing(samples):
            found = self.transformed(samples)
            yield from found if get_worker_info() is None else map(shared, found)

    def transformed(self, samples: Samples | Mixture) -> Iterator[Any]:
        """Yield what the transform makes of the samples; a mixture has a transform for each of its sources."""
        transform = timed_transform(self.transform)
        return samples if transform is None or isinstance(samples, Mixture) else transformed(samples, transform)

    def __getstate__(self) -> State:
        # A running iteration is not copied: the copy restarts the epoch.
        return {**self.__dict__, "_current": None, "_unread": None, "_counted": None}

    def state_dict(self) -> State:
        """Return the position of this process's last iteration, from which a dataset that loads it resumes."""
        info, current = get_worker_info(), self._current
        if info is None or current is None:
            return self.iterations.state(current.state_dict() if current else None)
        if not current.finished:
            self.iterations.ask(info.id)
        return current.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Resume at a state with the next iteration; after a finished epoch with the next epoch.

        Raises:
            ChannelError: It is not a dataset's state.
        """
        check_state(state, "dataset")
        self.load(state, bool(state.get("finished")))

    def load(self, state: State, finished: bool) -> None:
        """Resume at a state of this dataset or of a loader over it."""
        info = get_worker_info()
        if self.restarts_epoch and not finished and info is None:
            warn_once(
                "SageMaker sends this Pipe in another order in each job, so the epoch of the state begins again; to resume in its"
                " middle, remove shuffle_config and use Reading(seed=...), or for a directory bucket use input_mode: FastFile"
            )
        self.iterations.load(state, finished, info.id if info else None)


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
        super().__init__([(channel, self.channel.mode)], self.environment, _placement(self.environment))
        check_how(format, reading)
        expect(transform is None or callable(transform), "transform", transform, "a function of a sample")
        self._format = format
        self.transform = transform
        self._reading = reading
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


def _placement(environment: Environment) -> Placement:
    """This process's placement; by the process group if there is one, since not all ranks are started by torchrun."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        return placement_of_rank(rank, world_size, len(environment.hosts), os.environ)
    return placement_of(environment)
