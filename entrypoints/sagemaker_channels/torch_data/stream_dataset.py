"""Epochs, states, length and the place among the ranks of an iterable dataset."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

from torch.utils.data import IterableDataset, get_worker_info

from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import Recipe
from sagemaker_channels.epoch.placement import Placement, Shard, default_shard, has_group, placement_of
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.epoch.states import State, sealed
from sagemaker_channels.epoch.transformed import finished
from sagemaker_channels.errors import ChannelError, expect, whole_number
from sagemaker_channels.sources.agreement import compare_by
from sagemaker_channels.sources.listing import job, join_job
from sagemaker_channels.sources.silence import warn_once
from sagemaker_channels.torch_data import frameworks
from sagemaker_channels.torch_data.epochs import Epochs, Loop, SharedWork
from sagemaker_channels.torch_data.ranks import exchange
from sagemaker_channels.torch_data.shared_memory import shared
from sagemaker_channels.waits import are_recorded

Self = TypeVar("Self", bound="StreamDataset")
_datasets = Counter[str]()  # created in this process, by their channels


class StreamDataset(IterableDataset[Any]):
    """Epochs, states and lengths of ChannelDataset and MixedDataset.

    A loop that reaches its end sets the next epoch, so it needs no `set_epoch`; one that is left early does not. Loops that are
    left early need it, because ranks and workers may have ended an epoch that others have not.
    """

    def __init__(self, recipes: Sequence[Recipe], ranks: tuple[int, int] | None = None) -> None:
        self.recipes, self._environment, self._process = list(recipes), recipes[0].environment, os.getpid()
        self._known_placement = placement_of(self._environment)
        self.ranks = None if ranks is None else _checked(ranks, self.recipes)
        self._divider: str | None = None  # in a spawned worker: what divides the samples in the process of its loader
        self._job = job()  # Its workers read the same listing.
        self._separate()

    def _separate(self) -> None:
        """Take a name and memory of its own, which a copy does not share."""
        sources = [(recipe.channel.name, recipe.channel.mode) for recipe in self.recipes]
        names = ", ".join(name for name, _ in sources)
        _datasets[names] += 1
        # The same on all ranks that create their datasets in one order.
        self._name = f"dataset {_datasets[names]} of {names}"
        self._shared_work = SharedWork(sources, self._environment)
        self._current: Loop | None = None  # the loop that this process began last, unless that is a loader's

    def _copy(self: Self) -> Self:
        """Return another dataset of the same samples, whose next loop begins at the same one."""
        made = copy.copy(self)
        made._separate()
        made.set_epoch(self.epoch)
        if (state := self._epochs.waiting) is not None:
            made._epochs.load(state)
        return made

    def __getstate__(self) -> State:
        frameworks.check_lightning(self._placement.world_size)
        frameworks.check_sent(getattr(self, "steps", None))
        # A running iteration is not copied: the copy restarts the epoch.
        return {**self.__dict__, "_current": None, "_divider": self._divided_by}

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop, from 0; under Pipe each has its own FIFO.

        Raises:
            ValueError: It is not a whole number from 0 on.
            ChannelError: accelerate or HF's Trainer would begin an earlier epoch than that in which the loaded state continues.
        """
        if whole_number("epoch", epoch, 0) < self.epoch and self._epochs.is_loaded:
            frameworks.check_epoch(epoch, self.epoch)
        self._epochs.set(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the next loop."""
        return self._epochs.epoch

    @property
    def _epochs(self) -> Epochs:
        """The epochs of this process's loops, or of those of the DataLoader whose worker it is."""
        return self._channel_work.epochs

    @property
    def _channel_work(self) -> SharedWork:
        """The work of the same processes, without those of other ranks, which one that has created the dataset may have started."""
        if self._process != os.getpid() and get_worker_info() is None:
            self._process = os.getpid()
            self._shared_work.separate()
        return self._shared_work

    @property
    def _placement(self) -> Placement:
        """This process's place among the ranks; the process group may have begun after the dataset was created."""
        # A spawned worker has no group, but what its parent knew.
        if has_group():
            self._known_placement = placement_of(self._environment)
        return self._known_placement

    @property
    def _divided_by(self) -> str | None:
        """The class of accelerate that divides what is read among the ranks, if one does."""
        return self._divider or frameworks.divider()

    def _reader_samples(self, reader: int = 0, readers: int = 1, epoch: int | None = None) -> Samples:
        """Return the samples of one of this rank's readers, before filters and transform; in the next epoch unless one is given."""
        join_job(self._job)
        compare_by(exchange)
        placement = Placement(*self.ranks) if self.ranks else self._placement
        # It divides what is read, so that must be everything, as if this were the only rank.
        if divider := self._divided_by:
            if self._placement.world_size > 1:
                channels = [recipe.channel for recipe in self.recipes]
                frameworks.check_divided(channels, len(self._environment.hosts), divider, readers)
            placement = Placement()
        shards = [default_shard(recipe.channel, placement, reader, readers) for recipe in self.recipes]
        return self._samples(self.epoch if epoch is None else epoch, shards)

    def _samples(self, epoch: int, shards: list[Shard]) -> Samples:
        raise NotImplementedError

    def _finished(self, samples: Samples) -> Iterator[Any]:
        """Yield the finished samples, and record how long the loop waits for them."""
        make = samples.source.maker()
        found = iter(samples) if make is None else finished(iter(samples), make, samples.place)
        found = found if get_worker_info() is None else map(shared, found)
        return self._channel_work.meter().over(found) if are_recorded() else found

    def _begin(self, readers: int = 1) -> Loop:
        """Begin a loop of so many readers of this process.

        Raises:
            ChannelError: Another framework would lose samples, or the loaded state does not fit.
        """
        own, info, self._current = self._placement, get_worker_info(), None
        frameworks.check_lightning(own.world_size)
        number, workers = (info.id, info.num_workers) if info else (0, 1)
        world_size = 1 if self._divided_by else self.ranks[1] if self.ranks else own.world_size
        frameworks.check_not_divided_again(world_size, workers)
        loop = self._epochs.begin(number, workers, info.seed - info.id if info else None)
        if number == 0 and own.world_size > 1:
            self._compare(loop)
        readers_here = range(number, number + readers)
        samples = self._at(
            loop.state, [self._reader_samples(each, workers * readers, loop.epoch) for each in readers_here]
        )
        is_elsewhere = self._divided_by == frameworks.DISPATCHER and own.rank > 0
        for each in samples if is_elsewhere else ():  # Rank 0 reads for all, and what other ranks fetch is not used.
            each.finish()
        loop.begin(samples, own)
        if is_elsewhere and info is None:
            self._end(loop)  # accelerate fetches nothing here.
        return loop

    def _compare(self, loop: Loop) -> None:
        """Raise ChannelError if another rank has begun this loop, of those since the epoch was set, in another epoch.

        Without a seed each epoch has the same shards, so that nothing is lost. Lightning begins each validation twice.
        """
        times, number = loop.number
        epoch, name = str(loop.epoch), f"loop {number} after {times} of {self._name}"
        has_order = any(each.reading.seed is not None or each.channel.mode == "Pipe" for each in self.recipes)
        if has_order and number > 1 and (exchange(name, epoch) or epoch) != epoch:
            raise ChannelError(
                f"a rank has left its loop over epoch {loop.epoch} early and begins it again, but another has read it to its end"
                " and continues with the next one",
                remedy="call set_epoch before each loop that may be left early",
            )

    def _end(self, loop: Loop) -> None:
        """End a loop. Raises ChannelError if this process is at another place among the ranks than when it began."""
        if (placement := loop.placement) is not None and placement != self._placement:
            raise ChannelError(
                f"the process group was initialized after this iteration began, which has read as rank {placement.rank} of"
                f" {placement.world_size}",
                remedy="begin to iterate after init_process_group",
            )
        self._epochs.end(loop)

    def __iter__(self) -> Generator[Any, None, None]:
        return self._in_worker() if get_worker_info() else self._loop()

    def _in_worker(self) -> Generator[Any, None, None]:
        # A persistent worker of torch sends on what the first sample raises, but ends if this method raises.
        yield from self._loop()

    def _loop(self) -> Generator[Any, None, None]:
        loop = self._begin()
        self._current, self._is_ahead = loop, frameworks.is_fetched_ahead()
        frameworks.warn_of_skipping(self)
        loop.move(0, loop.samples[0].state_dict)  # its place after any sample
        return self._one_by_one(loop)

    def _one_by_one(self, loop: Loop) -> Generator[Any, None, None]:
        try:
            with closing(loop.samples[0]) as samples:
                yield from self._finished(samples)
        except (Exception, KeyboardInterrupt, SystemExit):  # but not a GeneratorExit
            self._is_ahead = True  # of the samples of a DataLoader's batch, and of the one that has failed
            raise
        self._end(loop)

    _is_ahead = False  # whether what iterates has fetched more than its own loop has got

    def __len__(self) -> int:
        """The number of this rank's samples in the next epoch. Raises TypeError with the reason if no index has it.

        A DataLoader with several workers gets a multiple of its batch size, from which it computes its exact number of batches.
        """
        loader = frameworks.loader_that_counts()
        if loader is not None and loader.batch_size is not None:
            return loader.batch_size * self._batches(loader.batch_size, loader.num_workers, drop_last=loader.drop_last)
        return self._reader_samples().counted()

    def _batches(self, size: int, readers: int, *, drop_last: bool) -> int:
        """Return the number of batches of so many samples. Raises TypeError like `len`."""
        rest = 0 if drop_last else size - 1
        return sum((self._reader_samples(each, readers).counted() + rest) // size for each in range(readers))

    def __bool__(self) -> bool:
        return True  # without counting

    def state_dict(self) -> State:
        """Return the position of this process's last loop, from which a dataset or loader that loads it continues.

        Raises:
            ChannelError: Samples were fetched that the loop has not got, by a loader in advance or before an error.
        """
        current = self._current if self._epochs.is_last(self._current) else None
        is_ahead = current is not None and self._is_ahead and not current.is_ended
        if get_worker_info() is not None or is_ahead or (current is None and self._epochs.is_running):
            raise ChannelError(
                "a dataset does not know which of its samples the loop has got, since its loader fetches more in advance, or has"
                " failed in the middle of a batch",
                remedy="take the state_dict() of a ThreadLoader or WorkerLoader of this dataset; after the end of an epoch that"
                " workers have read, call set_epoch before state_dict()",
            )
        return self._position_of(current, 1)

    def _position_of(self, loop: Loop | None, readers: int) -> State:
        """Return the position of a loop of so many readers; if it is not the last one, that at which the next one begins."""
        frameworks.check_not_flattened()
        if not self._epochs.is_last(loop):
            loop = Loop(self.epoch, self._epochs.waiting)
            loop.begin(self._at(loop.state, [self._reader_samples(each, readers) for each in range(readers)]))
        return sealed(loop.position())

    @staticmethod
    def _at(state: State | None, samples: list[Samples]) -> list[Samples]:
        """Return the samples, which continue at a state if there is one."""
        if state is not None:
            for each in samples:
                each.load_state_dict(state)
        return samples

    def load_state_dict(self, state: State) -> None:
        """Continue at a state of a dataset or loader, or at the merged one of all ranks, with the next loop.

        After a finished epoch of all ranks the next epoch follows. A rank that has finished one that others may not have finished
        gets no samples in the next loop.

        Raises:
            ChannelError: It is no state of ours.
        """
        self._epochs.load(state)
        if state["of"].get("restart") and any(state["at"].values()):
            warn_once(
                "SageMaker sends this Pipe in another order in each job, so the epoch of the state begins again; to resume in its"
                " middle, remove shuffle_config and use seed=, or for a directory bucket use input_mode: FastFile"
            )


def _checked(ranks: tuple[int, int], recipes: Sequence[Recipe]) -> tuple[int, int]:
    """Return the argument `ranks`. Raises TypeError, ValueError or ChannelError if it is impossible."""
    is_pair = isinstance(ranks, tuple | list) and len(ranks) == 2
    expect(is_pair, "ranks", ranks, "the index of this rank's group, from 0, and the number of groups: ranks=(0, 2)")
    index, count = (whole_number("ranks", each, 0) for each in ranks)
    if not 0 <= index < count:
        raise ValueError(f"ranks is {ranks!r}; give the index of this rank's group, from 0, and the number of groups")
    for channel in (recipe.channel for recipe in recipes):
        if channel.mode == "Pipe" or channel.distribution == contract.SHARDED:
            raise ChannelError(
                "ranks= needs a channel whose objects every rank can read",
                channel=channel.name,
                remedy="use input_mode: FastFile without ShardedByS3Key",
            )
    return index, count
