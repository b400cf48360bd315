"""Which epoch an iteration of a dataset is: for the dataset, and for its copies in a DataLoader's workers.

`set_epoch` says so; else the states that were loaded do. Of an epoch that was read to its end nothing is left, so the next one
follows; where there are several ranks, others may still be in the middle of it, so there it is iterated once more, without
samples. What makes this more than a number is that torchdata's StatefulDataLoader hands each worker a state of its own, after
the epoch was set, tells the dataset of the loading process nothing, and begins twice where the loop had ended: first with
the state, which has samples left all the same where `drop_last` dropped them, and then with none. So all of them share what
they were told.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from typing import Any

import torch

WORKERS = 1024  # of a DataLoader, at most
_NOTHING, _GOES_ON, _FINISHED, _PASSED = range(4)


class Epochs:
    """What is known in all processes of one dataset, in shared memory: workers that persist over epochs hold a copy."""

    def __init__(self) -> None:
        self._told = torch.full(
            (1,), -1, dtype=torch.int64
        )  # by set_epoch, else by the first sample of a state's epoch
        self._times = torch.zeros(1, dtype=torch.int64)  # that set_epoch said so
        # By worker: the time at which it was to go on in the epoch that set_epoch had said.
        self._went_on = torch.zeros(WORKERS, dtype=torch.int64)
        # By worker: the epoch of the state that it has loaded, and what that said; until it gives a sample.
        self._loaded = torch.full((WORKERS,), -1, dtype=torch.int64)
        self._said = torch.full((WORKERS,), _NOTHING, dtype=torch.int64)
        self.__setstate__(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for cells in (self._told, self._times, self._went_on, self._loaded, self._said):
            cells.share_memory_()  # type: ignore[no-untyped-call]

    def tell(self, epoch: int) -> None:
        """The next iteration is of this epoch."""
        self._told[0] = epoch
        self._times[0] += 1

    def next(self, is_only_rank: bool) -> int:
        """The epoch of the next iteration."""
        if self._told[0] >= 0:
            return int(self._told[0])
        loaded = self._loaded[(self._said == _GOES_ON) | (self._said == _FINISHED)]
        if len(loaded):
            return int(loaded.max()) + is_only_rank
        return int(self._loaded.max()) + 1  # what was passed over, or -1

    def forget_states(self) -> None:
        """No state has been loaded."""
        self._loaded.fill_(-1)
        self._said.fill_(_NOTHING)
        self._went_on.fill_(0)

    def load(self, worker: int, epoch: int, finished: bool) -> None:
        """A worker has loaded a state of this epoch. One that is not finished can be at its end all the same, and not know it."""
        self._loaded[worker], self._said[worker] = epoch, _FINISHED if finished else _GOES_ON

    def has_finished(self, epoch: int, workers: int) -> bool:
        """Whether all the workers' states say so."""
        return bool(((self._loaded[:workers] == epoch) & (self._said[:workers] == _FINISHED)).all())

    def go_on(self, worker: int, epoch: int) -> None:
        """A DataLoader's worker begins to go on in this epoch."""
        self._went_on[worker] = self._times[0] if self._told[0] == epoch else 0

    def ask_state(self, worker: int, finished: bool) -> None:
        """A worker is asked where it stands. In the middle of its shard it has given a whole batch: that was not dropped."""
        if not finished and self._said[worker] == _NOTHING:
            self._went_on.fill_(0)

    def is_over(self, epoch: int, worker: int, workers: int) -> bool:
        """Whether nothing is left for a worker: all have loaded states of this epoch and none has given a sample since; or they
        went on in it with less than a batch, and begin once more without being told an epoch.
        """
        if self._went_on[worker] == self._times[0] > 0:
            return True
        return bool((self._loaded[:workers] == epoch).all() and self._said[worker] != _PASSED)

    def pass_over(self, worker: int) -> None:
        """The worker has iterated over the rest of its state's epoch, which is none."""
        self._said[worker] = _PASSED
        self._went_on[worker] = 0

    def give(self, worker: int, epoch: int) -> None:
        """A worker gives a sample of this epoch."""
        self._loaded[worker], self._said[worker] = -1, _NOTHING
        if (
            self._told[0] < 0
        ):  # what set_epoch said stands: an epoch that had ended can have samples left that were dropped
            self._told[0] = epoch
