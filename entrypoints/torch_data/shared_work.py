"""The work of a DataLoader's workers, in memory that the training process reads."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from dataclasses import astuple
from functools import partial
from typing import Any

import torch

from entrypoints.job.environment import Environment
from entrypoints.torch_data.epoch_counter import WORKERS
from entrypoints.waits import Work, Write, write_record

_FIELDS = astuple(Work())


class SharedWork:
    """A row for each worker, which adds to no other."""

    def __init__(self) -> None:
        self._rows = torch.zeros(WORKERS, len(_FIELDS), dtype=torch.float64)
        self.__setstate__(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._rows.share_memory_()  # type: ignore[no-untyped-call]

    def add(self, worker: int, work: Work) -> None:
        """Add a worker's work and empty it."""
        self._rows[worker] += torch.tensor(astuple(work), dtype=torch.float64)
        vars(work).update(vars(Work()))

    def total(self) -> Work:
        return Work(*self._rows.sum(0).tolist())


def writer(environment: Environment) -> Write:
    """Return the function that writes a dataset's records into the log and this job's outputs."""
    return partial(write_record, root=environment.root, host=environment.current_host)
