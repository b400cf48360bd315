"""The work of a dataset's loops and of their workers, in memory that all processes of a DataLoader share."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch.utils.data import get_worker_info

from sagemaker_channels.job.environment import Environment
from sagemaker_channels.meter import Meter, Work
from sagemaker_channels.torch_data.epochs import CELLS, READERS
from sagemaker_channels.waits import RecordWriter, Waits, Write, about


class SharedWork:
    """A row for each worker, which adds to no other, and in it one for each channel.

    Args:
        sources: The names and input modes of the channels.
        environment: The job, whose log and outputs get the records.
    """

    is_timed = False  # whether the loop records its waits elsewhere

    def __init__(self, sources: Sequence[tuple[str, str]], environment: Environment) -> None:
        self.sources = list(sources)
        self._write = RecordWriter(environment.root, environment.current_host, in_jobs_only=True)
        self._rows = torch.zeros(READERS, len(self.sources), len(fields(Work)), dtype=torch.float64)
        self.cells: Any = torch.zeros(CELLS, dtype=torch.int64)  # of the dataset's epochs (epochs.py)
        self.__setstate__(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for each in (self._rows, self.cells):
            each.share_memory_()

    def separate(self) -> None:
        """Stop sharing with the process that this one was started by: it is another rank, and no worker."""
        self.__setstate__({"_rows": self._rows.clone(), "cells": self.cells.clone()})

    def _add(self, worker: int, works: Sequence[Work]) -> None:
        self._rows[worker] += torch.tensor([work.numbers() for work in works], dtype=torch.float64)

    def _done(self) -> list[Work]:
        """Return what all workers have done, for each channel."""
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
