"""The work of a dataset's loops and of their workers, in memory that all processes of a DataLoader share."""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch.utils.data import get_worker_info

from sagemaker_channels.job.environment import Environment
from sagemaker_channels.meter import Meter, Work
from sagemaker_channels.torch_data.epochs import CELLS, READERS
from sagemaker_channels.waits import Record, RecordWriter, Waits, WorkerWaits, Write, about, worker_meter


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

    def add(self, worker: int, works: Sequence[Work]) -> None:
        """Add what a worker has done, for each channel."""
        self._rows[worker] += torch.tensor([work.numbers() for work in works], dtype=torch.float64)

    def totals(self) -> list[Work]:
        """Return what all workers have done, for each channel."""
        return [Work(*row) for row in self._rows.sum(0).tolist()]

    def loop(self, workers: int = 0, threads: int = 0, write: Write | None = None) -> Waits:
        """Return the waits of a loop for which others make the batches: processes, threads, or a loader in its own thread."""
        self._write.in_jobs_only &= not self.is_timed
        return Waits(self._abouts(workers, threads), write or self._write, self.totals)

    def worker(self, number: int, own: WorkerWaits | None = None) -> Meter:
        """Return the meter of one of these."""
        return worker_meter(partial(self.add, number), len(self.sources), own)

    def meter(self) -> tuple[Meter, Callable[[], object] | None]:
        """Return the meter for a loop over the dataset in this process, and what to call at the loop's end."""
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 0)
        if info is None and not self.is_timed:
            waits = Waits(self._abouts(0), self._write, self.totals, partial(self.add, 0))
            return waits.meter, waits.flush
        own = (
            WorkerWaits(self._abouts(workers), self._write, self.totals) if number == 0 and not self.is_timed else None
        )
        return self.worker(number, own), own.flush if own else None

    def _abouts(self, workers: int, threads: int = 0) -> list[Record]:
        return [about(*source, workers, threads) for source in self.sources]
