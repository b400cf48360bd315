"""The epoch of a dataset's next iteration, in its own process and in a DataLoader's workers.

`set_epoch` sets it; otherwise the loaded states do. After the state of a finished epoch the next epoch follows; with several ranks,
others may still be in the middle of that epoch, so it is iterated once more, without samples.

torchdata's StatefulDataLoader makes this more than a number. It passes each worker its own state after the epoch was set, passes
the dataset of the loading process nothing, and iterates twice after a state from the end of a loop: first with the state, which
has samples left if `drop_last` dropped them, then without it. So all processes share what each has loaded.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from typing import Any

import torch

WORKERS = 1024  # at most, of a DataLoader
_NONE, _UNFINISHED, _FINISHED, _SKIPPED = range(4)


class Epochs:
    """Epochs and states of one dataset in the shared memory of its processes; persistent workers keep a copy."""

    def __init__(self) -> None:
        # From set_epoch, else from the first sample of a state's epoch.
        self._epoch = torch.full((1,), -1, dtype=torch.int64)
        self._times = torch.zeros(1, dtype=torch.int64)  # calls of set_epoch
        # By worker: `_times` when it was to resume in the epoch that set_epoch had set, else 0.
        self._resumed = torch.zeros(WORKERS, dtype=torch.int64)
        # By worker, until it yields a sample: the epoch of the state that it has loaded, and what became of that.
        self._loaded = torch.full((WORKERS,), -1, dtype=torch.int64)
        self._status = torch.full((WORKERS,), _NONE, dtype=torch.int64)
        # By worker: whether it has resumed at the merged state that the dataset has loaded.
        self._taken = torch.zeros(WORKERS, dtype=torch.int64)
        self.__setstate__(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for cells in (self._epoch, self._times, self._resumed, self._loaded, self._status, self._taken):
            cells.share_memory_()  # type: ignore[no-untyped-call]

    def set(self, epoch: int) -> None:
        self._epoch[0] = epoch
        self._times[0] += 1

    def next(self, is_only_rank: bool) -> int:
        if self._epoch[0] >= 0:
            return int(self._epoch[0])
        loaded = self._loaded[(self._status == _UNFINISHED) | (self._status == _FINISHED)]
        if len(loaded):
            return int(loaded.max()) + is_only_rank
        return int(self._loaded.max()) + 1  # the skipped epoch, or -1

    def offer(self) -> None:
        """Record that the dataset has loaded a state for all workers."""
        self._taken.fill_(0)

    def take(self, worker: int) -> bool:
        """Return whether a worker has yet to resume at that state; the next time it has not."""
        is_first = not self._taken[worker]
        self._taken[worker] = 1
        return is_first

    def forget_states(self) -> None:
        self._loaded.fill_(-1)
        self._status.fill_(_NONE)
        self._resumed.fill_(0)

    def load(self, worker: int, epoch: int, finished: bool) -> None:
        """Record that a worker has loaded a state of this epoch, which may be at its end although it is not finished."""
        self._loaded[worker], self._status[worker] = epoch, _FINISHED if finished else _UNFINISHED

    def has_finished(self, epoch: int, workers: int) -> bool:
        """Return whether all workers have loaded a finished state of this epoch."""
        return bool(((self._loaded[:workers] == epoch) & (self._status[:workers] == _FINISHED)).all())

    def resume(self, worker: int, epoch: int) -> None:
        """Record that a DataLoader's worker resumes in this epoch."""
        self._resumed[worker] = self._times[0] if self._epoch[0] == epoch else 0

    def note_state(self, worker: int, finished: bool) -> None:
        """Record that a worker's state is taken. In the middle of its shard it has yielded a whole batch, not a dropped one."""
        if not finished and self._status[worker] == _NONE:
            self._resumed.fill_(0)

    def is_over(self, epoch: int, worker: int, workers: int) -> bool:
        """Return whether no samples are left for a worker.

        Either all have loaded states of this epoch and yielded no sample since, or they resumed in it with less than a batch and
        iterate once more without another set_epoch.
        """
        if self._resumed[worker] == self._times[0] > 0:
            return True
        return bool((self._loaded[:workers] == epoch).all() and self._status[worker] != _SKIPPED)

    def skip(self, worker: int) -> None:
        """Record that the worker iterates over a finished epoch, without samples."""
        self._status[worker] = _SKIPPED
        self._resumed[worker] = 0

    def begin(self, worker: int, epoch: int) -> None:
        """Record that a worker yields its first sample of this epoch."""
        self._loaded[worker], self._status[worker] = -1, _NONE
        if self._epoch[0] < 0:  # set_epoch has priority: a finished epoch can have samples left that were dropped.
            self._epoch[0] = epoch
