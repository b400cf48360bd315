"""Epochs, states and the place among the ranks of an iterable dataset."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from sagemaker_channels.errors import ChannelError, whole_number
from sagemaker_channels.fetching.silence import warn_once
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.order.iterations import Iterations, Start, check_state
from sagemaker_channels.order.samples import Samples
from sagemaker_channels.order.sampling import State
from sagemaker_channels.order.sharding import Placement
from sagemaker_channels.sample import Sample
from sagemaker_channels.samples.channel import placement_of
from sagemaker_channels.samples.mixing import Mixture
from sagemaker_channels.samples.transformed import transformed
from sagemaker_channels.torch_data import frameworks
from sagemaker_channels.torch_data.agreement import exchange, group_placement, is_stored
from sagemaker_channels.torch_data.shared_memory import shared
from sagemaker_channels.torch_data.shared_work import SharedWork
from sagemaker_channels.waits import are_recorded, timed_transform

Transform = Callable[[Sample], Any]

_datasets = Counter[str]()  # created in this process, by their channels


class StreamDataset(IterableDataset[Any]):
    """Epochs and states of ChannelDataset and MixedDataset.

    `state_dict` and `load_state_dict` are those of torchdata: a StatefulDataLoader with as many workers as before resumes in the
    middle of an epoch. Without workers they work with a plain DataLoader, too. A state of `merge_states` is loaded into the
    dataset, for any loader and number of workers. A state from the end of an epoch resumes with the next one, unless `set_epoch`
    sets another.

    An iteration that reaches its end sets the next epoch, so a loop needs no `set_epoch`; one that is left early does not.
    Loops that are left early need it, because ranks and workers may have ended an epoch that others have not.
    """

    transform: Transform | None = None  # for the samples that `samples` returns

    def __init__(self, sources: Sequence[tuple[str, str]], environment: Environment) -> None:
        self._job_environment, self._process = environment, os.getpid()
        names = ", ".join(name for name, _ in sources)
        _datasets[names] += 1
        self._name = (
            f"dataset {_datasets[names]} of {names}"  # the same on all ranks that create their datasets in one order
        )
        self._known_placement = placement_of(environment)
        self._divider: str | None = None  # in a spawned worker: what divides the samples in the process of its loader
        self._is_loop_resumed = False  # in a spawned worker: whether its loader resumed a loop
        self._shared_work = SharedWork(sources, environment)
        self._iterations = Iterations(self._shared_work.cells)
        self._current: Samples | Mixture | None = None  # of the iteration that began last
        self._unread: Samples | Mixture | None = None  # these until it reads
        self._counted: tuple[Placement, Samples | Mixture] | None = None  # by `len`, for the next iteration
        self._is_ahead = False  # whether what iterates has fetched more than its own loop has got

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, from 0; under Pipe each has its own FIFO.

        Raises:
            ValueError: It is not a whole number from 0 on.
            ChannelError: accelerate would begin another epoch than that of the loaded state.
        """
        whole_number("epoch", epoch, 0)
        loaded = self.iterations.waiting
        if (
            loaded is not None
            and epoch != loaded["epoch"]
            and not loaded.get("finished")
            and frameworks.is_fetched_ahead()
        ):
            raise ChannelError(
                f"accelerate counts epochs from 0 itself and would begin epoch {epoch}, but the loaded state is in epoch"
                f" {loaded['epoch']}; call set_epoch({loaded['epoch']}) of the loader that it has prepared before the loop"
            )
        self.iterations.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self.iterations.epoch

    @property
    def iterations(self) -> Iterations:
        """The epochs of this process's iterations, or of those of the DataLoader whose worker it is."""
        self._separate()
        return self._iterations

    @property
    def shared_work(self) -> SharedWork:
        """The work of the same processes."""
        self._separate()
        return self._shared_work

    def _separate(self) -> None:
        """Stop sharing with other ranks, which a process that has created the dataset may have forked or spawned."""
        if self._process != os.getpid() and get_worker_info() is None:
            self._process = os.getpid()
            self._shared_work.separate()
            self._iterations.cells = self._shared_work.cells

    @property
    def own_placement(self) -> Placement:
        """This process's place among the ranks; the process group may have begun after the dataset was created."""
        # A spawned worker has no group, but what its parent knew.
        self._known_placement = group_placement(self._job_environment) or self._known_placement
        return self._known_placement

    @property
    def divider(self) -> str | None:
        """The class of accelerate that divides what is read among the ranks, if one does."""
        return self._divider or frameworks.divider()

    @property
    def placement(self) -> Placement:
        """Where to read: everything, as if it were the only rank, if accelerate divides that among all ranks."""
        return Placement() if self.divider else self.own_placement

    @property
    def restarts_epoch(self) -> bool:
        """Whether a state from the middle of an epoch resumes at its beginning, because its order cannot be repeated."""
        return False

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Samples | Mixture:
        """Return the samples of one of this rank's workers, before the transform; in the next epoch unless one is given."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of this rank's samples in the next epoch. Raises TypeError with the reason if no index has it.

        A DataLoader with several workers gets a multiple of its batch size, from which it computes its exact number of batches.
        """
        loader = frameworks.loader_that_counts()
        if loader is not None and loader.batch_size is not None:
            size, workers = loader.batch_size, loader.num_workers
            rest = 0 if loader.drop_last else size - 1
            return size * sum((self.samples(each, workers).counted() + rest) // size for each in range(workers))
        if self._unread is not None and self._unread.epoch == self.epoch:
            return self._unread.counted()  # `list` calls this after the iteration has begun, before it reads
        placement = self.placement
        if self._counted is None or (self._counted[0], self._counted[1].epoch) != (placement, self.epoch):
            self._counted = placement, self.samples()
        return self._counted[1].counted()

    def __bool__(self) -> bool:
        return True  # without counting

    def begin(self) -> Start:
        """Begin an iteration in this process, of the dataset or of a loader's threads over it."""
        frameworks.check_lightning(self.own_placement.world_size)
        info, self._current = get_worker_info(), None
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        start = self.iterations.begin(worker, workers, _loop(info))
        if self.iterations.is_again and self.own_placement.world_size > 1 and is_stored(self._end_of(start.epoch)):
            raise ChannelError(
                f"this rank begins epoch {start.epoch} again, since its last loop was left early, but another rank has read it to"
                " its end and continues with the next one; call set_epoch before each loop that may be left early"
            )
        return start

    def _end_of(self, epoch: int) -> str:
        return f"end of epoch {epoch} of {self._name}"

    def __iter__(self) -> Iterator[Any]:
        info, placement, begin = get_worker_info(), self.placement, self.begin()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        counted, self._counted = self._counted, None
        if counted is not None and info is None and (counted[0], counted[1].epoch) == (placement, begin.epoch):
            samples = counted[1]  # listed already
        else:
            samples = self.samples(worker, workers, begin.epoch)
        self._current = self._unread = samples
        self._is_ahead = frameworks.is_fetched_ahead()
        if begin.state is not None:
            self.iterations.is_loop |= self._is_loop_resumed or frameworks.is_loop_resumed()
            samples.load_state_dict(begin.state)
            if samples.finished and self.iterations.is_loop:
                # Without workers, a StatefulDataLoader does not read any further.
                self.end(begin.epoch, self.own_placement)
            if samples.finished and placement.local_world_size > 1:
                # Other readers of a Pipe wait until this shard connects, too, and a StatefulDataLoader may request no sample.
                next(samples, None)
            return self._resumed(samples, worker)
        is_elsewhere = self.divider == frameworks.DISPATCHER and self.own_placement.rank > 0
        if begin.is_over or is_elsewhere:  # Rank 0 reads for all, and what other ranks fetch is not used.
            samples.finish()
            if is_elsewhere and info is None:
                self.end(begin.epoch, self.own_placement)  # accelerate fetches nothing here.
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

    def _transformed(self, samples: Samples | Mixture) -> Generator[Any, None, None]:
        """Yield the transformed samples, and record how long the loop waits for them."""
        plain = self._untimed(samples)
        if not are_recorded():
            return plain
        meter, finish = self.shared_work.meter()
        return meter.over(plain, finish=finish)

    def _untimed(self, samples: Samples | Mixture) -> Generator[Any, None, None]:
        self._unread, info, placement = None, get_worker_info(), self.own_placement
        with closing(samples):
            found = self.transformed(samples)
            yield from found if info is None else map(shared, found)
        self.end(samples.epoch, placement)

    def end(self, epoch: int, placement: Placement) -> None:
        """End an iteration that began with this process at `placement`. Raises ChannelError if it is at another now."""
        if placement != self.own_placement:
            raise ChannelError(
                f"the process group was initialized after this iteration began, which has read as rank {placement.rank} of"
                f" {placement.world_size}; begin to iterate after init_process_group"
            )
        info = get_worker_info()
        is_next = self.iterations.end(epoch, info.id if info else 0, _loop(info))
        if is_next and placement.world_size > 1:
            exchange(self._end_of(epoch), "ended")

    def transformed(self, samples: Samples | Mixture) -> Iterator[Any]:
        """Yield what the transform makes of the samples; a mixture has a transform for each of its sources."""
        transform = timed_transform(self.transform)
        return samples if transform is None or isinstance(samples, Mixture) else transformed(samples, transform)

    def __getstate__(self) -> State:
        frameworks.check_lightning(self.own_placement.world_size)
        # A running iteration is not copied: the copy restarts the epoch.
        alone = {"_current": None, "_unread": None, "_counted": None}
        found = {"_divider": self.divider, "_is_loop_resumed": frameworks.is_loop_resumed()}
        return {**self.__dict__, **alone, **found}

    def state_dict(self) -> State:
        """Return the position of this process's last iteration, from which a dataset that loads it resumes.

        Raises:
            ChannelError: A loader has fetched samples that its loop has not got, so only the loader knows the position.
        """
        info, current = get_worker_info(), self._current
        if info is None:
            is_unknown = self._is_ahead and current is not None and not current.finished
            if is_unknown or self.iterations.is_elsewhere() or (current is None and self.iterations.is_running()):
                self._check_is_known()
            return self.iterations.state(current.state_dict() if current else None)
        if current is None:
            return self.iterations.state(None)
        if not current.finished:
            self.iterations.ask(info.id)
        return current.state_dict()

    def _check_is_known(self) -> None:
        if not frameworks.is_asked_by_torchdata():
            raise ChannelError(
                "a dataset does not know which of its samples the loop has got, since its loader fetches more in advance; take"
                " the state_dict() of a ThreadLoader or a StatefulDataLoader that accelerate has not prepared"
            )

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
        are_several = self.own_placement.world_size > 1
        self.iterations.load(state, finished, info.id if info else None, are_several=are_several)


def _loop(info: Any) -> int | None:
    """Return a number that all workers of one loop have in common, or None outside of a worker."""
    return info.seed - info.id if info else None
