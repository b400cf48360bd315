"""What the processes of a DataLoader share of a dataset: which epoch each loop reads, and the work of the loops and workers.

`set_epoch` or a loaded state sets the epoch; the end of a loop sets the next one. One that is left early does not.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeGuard

import torch
from torch.utils.data import get_worker_info

from sagemaker_channels.epoch.placement import Placement
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.epoch.states import State, checked, is_fresh, is_over, united
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.meter import Meter, Work
from sagemaker_channels.waits import RecordWriter, Waits, Write, about

_READERS = 1024  # at most, of a dataset
# The cells: the epoch, how often a state was loaded, the mark of the loop that continued at it, how often the epoch was set, the
# number of loops since then, whether one of them may not have ended, and for each reader the mark of the loop that it has ended
# last, which is negative until then.
_EPOCH, _LOADED, _USED, _SET, _LOOPS, _RUNNING, _ENDS = range(7)
_CELLS = _ENDS + _READERS


@dataclass(eq=False)
class Loop:
    """One loop over a dataset, as one process sees it: its readers make batches in turns, and are at a place after the last one."""

    epoch: int
    state: State | None  # at which it continues
    mark: int = 0  # that of all its readers
    reader: int = 0  # this process, of so many
    readers: int = 1
    is_of_worker: bool = False
    number: tuple[int, int] = (0, 0)  # how often the epoch was set, and the number of loops since then, with this one
    loads: int = 0  # how often a state had been loaded
    is_ended: bool = False

    def begin(self, samples: list[Samples], placement: Placement | None = None) -> Loop:
        """Begin with the samples of this process's readers, at its state, and with its place among the ranks."""
        self.samples, self.placement = samples, placement
        self._places: list[Callable[[], State]] = [partial(each.state_of, each.mark()) for each in samples]
        first = self._places[0]()
        self._group = f"readers of {min(first['at'], key=int)}"
        turn, among = (self.state or {}).get("turn", {}).get(self._group, (0, 0))
        is_same = among == len(samples) and self.state is not None and self.state["history"] == first["history"]
        self.turn = turn if is_same else 0  # the reader of the next batch
        return self

    def move(self, reader: int, state: Callable[[], State]) -> None:
        """Record where a reader is after its batch, which the loop gets now."""
        self._places[reader], self.turn = state, (reader + 1) % len(self._places)

    def position(self) -> State:
        state = united(each() for each in self._places)
        if len(self._places) > 1:
            state["turn"][self._group] = [self.turn, len(self._places)]
        return {**state, "at": dict.fromkeys(state["at"])} if self.is_ended else state


class Epochs:
    """The epochs of a dataset; its cells are shared by all processes that iterate."""

    def __init__(self) -> None:
        self.cells: Any = torch.zeros(_CELLS, dtype=torch.int64)
        self.loaded: State | None = None  # forked workers have a copy
        self._loads = 0  # how often `loaded` was set
        self._begun = 0  # loops in this process; its workers begin with as many

    @property
    def epoch(self) -> int:
        return int(self.cells[_EPOCH])

    @property
    def is_running(self) -> bool:
        """Whether a loop was begun that may not have ended, and no epoch was set since.

        Workers read ahead: when all have ended, the loop may not have got their last batches.
        """
        return bool(self.cells[_RUNNING])

    def set(self, epoch: int) -> None:
        self.cells[_EPOCH], self.cells[_LOOPS], self.cells[_RUNNING] = epoch, 0, 0
        self.cells[_SET] += 1

    def load(self, state: State) -> None:
        """Continue at a state with the next loop; after a finished epoch of all readers with the next epoch.

        If the finished epoch is set again before that loop, nothing is left of it.
        """
        state = checked(state)
        self._loads += 1
        self.cells[_LOADED], self.cells[_USED] = self._loads, 0
        self.loaded = None if is_fresh(state) or (state["of"].get("restart") and not is_over(state)) else state
        self.set(int(state["epoch"]) + is_over(state))

    @property
    def waiting(self) -> State | None:
        """The loaded state, until a loop has continued at it or another epoch was set."""
        state = self.loaded
        return state if self.is_loaded and state and state["epoch"] == self.epoch else None

    @property
    def is_loaded(self) -> bool:
        """Whether a state was loaded at which no loop has continued, and the next one would."""
        state = self.loaded
        return state is not None and not self.cells[_USED] and self.epoch - state["epoch"] in (0, is_over(state))

    def begin(self, reader: int = 0, readers: int = 1, seed: int | None = None) -> Loop:
        """Begin a loop of one of so many readers; workers have a `seed`, the same one, and have begun as many loops."""
        if self.cells[_LOADED] != self._loads:
            raise ChannelError(
                "a state was loaded after the DataLoader's workers had started, so they do not know it",
                remedy="load it before the first loop, or use persistent_workers=False",
            )
        epoch = self.epoch
        self._begun += 1
        mark = 1 + abs(hash((epoch, seed or 0, self._begun))) % 2**62
        state = self.loaded if self.cells[_USED] in (0, mark) else None
        if state is not None:
            self.cells[_USED] = mark
            state = state if state["epoch"] == epoch else None
        self.cells[_ENDS + reader], self.cells[_RUNNING] = -mark, 1
        self.cells[_LOOPS] += reader == 0
        number = int(self.cells[_SET]), int(self.cells[_LOOPS])
        return Loop(epoch, state, mark, reader, readers, seed is not None, number, self._loads)

    def is_last(self, loop: Loop | None) -> TypeGuard[Loop]:
        """Return whether neither a state was loaded nor another epoch set since a loop began, but by its end."""
        if loop is None or self.cells[_LOADED] != loop.loads:
            return False
        return loop.epoch in (self.epoch, self.epoch - loop.is_ended)

    def check(self, loop: Loop) -> None:
        """Raise ChannelError if a state was loaded since a loop began: its end would set the epoch after that of the state."""
        if self.cells[_LOADED] != loop.loads:
            raise ChannelError(
                "a state was loaded while this loop runs, which has not read from there",
                remedy="leave the loop after loading, and begin another one",
            )

    def end(self, loop: Loop) -> None:
        """End the loop of one reader; the end of the last one sets the next epoch. Raises what `check` does."""
        self.check(loop)
        # Workers of an earlier loop, which was left, must not count as those of this one.
        if self.cells[_ENDS + loop.reader] == -loop.mark:
            self.cells[_ENDS + loop.reader] = loop.mark
        ends = {int(self.cells[_ENDS + reader]) for reader in range(loop.readers)}
        # Readers that end at the same time all write the same.
        if ends == {loop.mark} and self.epoch == loop.epoch:
            self.cells[_EPOCH], self.cells[_RUNNING] = loop.epoch + 1, int(loop.is_of_worker)
        loop.is_ended = True


class SharedWork:
    """A row for each worker, which adds to no other, and in it one for each channel.

    `sources` has the channels' names and input modes.
    """

    is_timed = False  # whether the loop records its waits elsewhere

    def __init__(self, sources: Sequence[tuple[str, str]], environment: Environment) -> None:
        self.sources = list(sources)
        self._write = RecordWriter(environment.root, environment.current_host, in_jobs_only=True)
        self._rows = torch.zeros(_READERS, len(self.sources), len(fields(Work)), dtype=torch.float64)
        self.epochs = Epochs()
        self.__setstate__(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self._rows.is_shared():  # type: ignore[no-untyped-call]
            self.separate()

    def separate(self) -> None:
        """Stop sharing with the process that this one was started by: it is another rank, and no worker."""
        self._rows, self.epochs.cells = _shared(self._rows), _shared(self.epochs.cells)

    def _add(self, worker: int, works: Sequence[Work]) -> None:
        self._rows[worker] += torch.tensor([work.numbers() for work in works], dtype=torch.float64)

    def _done(self) -> list[Work]:
        return [Work(*row) for row in self._rows.sum(0).tolist()]

    def loop(self, workers: int = 0, threads: int = 0, write: Write | None = None) -> Meter:
        """Return the meter of a loop for which others make the batches: processes, threads, or a loader in its own thread."""
        self._write.in_jobs_only &= not self.is_timed
        abouts = [about(*source, workers, threads) for source in self.sources]
        return Waits(abouts, write or self._write, self._done).meter

    def worker(self, number: int) -> Meter:
        """Return the meter of one of these, in the order of their numbers."""
        return Meter(partial(self._add, number), len(self.sources))

    def meter(self) -> Meter:
        """Return the meter for a loop over the dataset in this process; the first worker records how busy all are."""
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 0)
        if number or self.is_timed:
            return self.worker(number)
        abouts = [about(*source, workers) for source in self.sources]
        return Waits(abouts, self._write, self._done, partial(self._add, number)).meter


def _shared(tensor: Any) -> Any:
    """Return a copy in shared memory.

    `share_memory_` copies bytes, which are so many that torch divides them among threads. A forked process lacks its parent's
    threads, and would wait for them forever.
    """
    memory = torch.UntypedStorage._new_shared(tensor.nbytes)  # type: ignore[no-untyped-call] # as default_collate does
    return torch.empty(0, dtype=tensor.dtype).set_(memory).view(tensor.shape).copy_(tensor)
