"""How long a training loop waits for its samples, and for what; written as log lines and as JSON lines among the job's outputs.

    waits channel=train mode=FastFile ... steps=100 step_s=0.031 wait_s=0.0127 ... wait_share=0.41 source_share=0.3 ...

Datasets and ThreadLoader record by themselves; `timed` records any other loader, and DataLoaders with worker processes, in which
a dataset cannot see the loop. Readers count bytes and the seconds in which they are blocked, transforms are timed, and the rest
of the time is parsing. LAUNCHER_WAITS=0 switches everything off.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

from entrypoints import contract

T = TypeVar("T")
Write = Callable[[Mapping[str, Any]], None]

STEPS = 100  # at least, per record
_RECORD_SECONDS = 10.0  # at least, so that a loop of short steps does not flood the log
_SHORT_SECONDS = 40e-6  # a step; recording one takes about 0.4e-6
_SHARED_SECONDS = 0.05  # between two reports of a worker process
_KEPT = 4096  # waits for the percentile; of more, every n-th is kept


def are_recorded() -> bool:
    """Return whether waits are recorded in this process."""
    return os.environ.get(contract.WAITS_VARIABLE) != "0"


@dataclass
class Work:
    """What a thread or process that makes samples has done. Times are in seconds."""

    busy: float = 0.0  # reading, parsing and transforming
    source: float = 0.0  # the part of it blocked until bytes arrive
    transform: float = 0.0  # the part of it in transforms and collate functions
    handover: float = 0.0  # until the consumer asks for the next sample
    samples: int = 0
    bytes: int = 0

    def serve(self, samples: Iterable[T], publish: Callable[[Work], None]) -> Generator[T, None, None]:
        """Yield the samples to a loop that is timed elsewhere; call `publish`, which empties the work, now and then."""

        def add(busy: float, handover: float) -> bool:
            self.busy += busy
            self.handover += handover
            self.samples += 1
            if self.busy + self.handover > _SHARED_SECONDS:
                publish(self)
            return False

        yield from _clocked(samples, add, self)
        publish(self)


def total(works: Iterable[Work]) -> Work:
    """Return the sum of several workers' work."""
    return Work(*map(sum, zip(*map(astuple, works), strict=True)))


class _Current(threading.local):
    work = Work()


_current = _Current()


def begin_work(work: Work) -> None:
    """Count what this thread reads from now on in `work`."""
    _current.work = work


def received(count: int) -> None:
    """Count bytes that have arrived from the source."""
    _current.work.bytes += count


def counting(transform: Callable[[Any], T] | None) -> Callable[[Any], T] | None:
    """Return the transform such that its time is counted; None for None."""
    if transform is None or not are_recorded():
        return transform

    def counted(sample: Any) -> T:
        work, begin = _current.work, time.perf_counter()
        try:
            return transform(sample)
        finally:
            work.transform += time.perf_counter() - begin

    return counted


def waited(begin: float) -> None:
    """Count the time since `begin`, of time.perf_counter, as waiting for the source."""
    _current.work.source += time.perf_counter() - begin


def _clocked(
    items: Iterable[T], add: Callable[[float, float], bool], work: Work, clock: Callable[[], float] = time.perf_counter
) -> Generator[T, None, None]:
    """Yield the items, and pass how long each was waited for and worked on, until `add` returns True."""
    iterator, nothing = iter(items), object()
    try:
        begin = clock()
        while True:
            _current.work = work  # Another loop of this thread may have run meanwhile.
            item: Any = next(iterator, nothing)
            if item is nothing:
                return
            arrived = clock()
            yield item
            del item  # frees it while the next is waited for
            end = clock()
            if add(arrived - begin, end - arrived):
                yield from iterator
                return
            begin = end
    finally:
        if isinstance(iterator, Generator):
            iterator.close()


class Waits:
    """The waits of one loop since the last record.

    Args:
        about: What is read, as the record's first members; `workers` is the number of threads or processes, 0 without any.
        done: Returns the work done so far, by all workers.
        write: Receives the records.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        done: Callable[[], Work],
        write: Write,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._about, self._done, self._write, self._clock = about, done, write, clock
        self._written = self._steps_are_samples = False
        self._before = done()
        self._begin()

    def _begin(self) -> None:
        self._steps, self._every = 0, 1
        self._waited = self._squares = self._worked = 0.0
        self._kept: list[float] = []

    def loop(self, batches: Iterable[T], work: Work | None = None) -> Generator[T, None, None]:
        """Yield the batches, and record how long the caller waits for each.

        `work` is what this thread itself reads: without workers, the waits are its work.
        """
        self._steps_are_samples = work is not None
        try:
            yield from _clocked(batches, self.add, work or Work(), self._clock)
        finally:
            self.flush()

    def add(self, wait: float, worked: float) -> bool:
        """Record a step: the seconds until its batch arrived, and those of the loop's own work.

        Returns:
            Whether the steps are so short that recording more of them would cost over 1 % of the time.
        """
        if self._steps % self._every == 0:
            self._kept.append(wait)
            if len(self._kept) >= _KEPT:
                self._kept = self._kept[::2]
                self._every *= 2
        self._steps += 1
        self._waited += wait
        self._squares += wait * wait
        self._worked += worked
        if self._steps < STEPS:
            return False
        short = self._waited + self._worked < self._steps * _SHORT_SECONDS
        if not self._written or self._waited + self._worked >= _RECORD_SECONDS:
            self.flush()
        return short

    def flush(self) -> None:
        """Write the record of the steps since the last one, if there are any."""
        if self._steps:
            self._write(self._record())
            self._written = True
            self._begin()

    def _record(self) -> dict[str, Any]:
        steps, total = self._steps, self._waited + self._worked or 1e-9
        mean, share = self._waited / steps, self._waited / total
        before, self._before = self._before, self._done()
        work = Work(*(now - then for now, then in zip(astuple(self._before), astuple(before), strict=True)))
        if self._steps_are_samples:
            work.busy, work.samples = self._waited, steps
        # Workers are not idle while a loop waits for them, so the time until they continue is that of sending the batch.
        handover = work.handover if self._about["workers"] else max(0.0, self._waited - work.busy)
        parts = {
            "source": work.source,
            "parse": max(0.0, work.busy - work.source - work.transform),
            "transform": work.transform,
            "handover": handover,
        }
        every = sum(parts.values()) if work.busy else 0.0
        return {
            **self._about,
            "steps": steps,
            "step_s": total / steps,
            "wait_s": mean,
            "wait_variance": max(0.0, self._squares / steps - mean * mean),
            "wait_p99_s": sorted(self._kept)[int(0.99 * (len(self._kept) - 1) + 0.5)],
            "wait_share": share,
            **{f"{name}_share": share * spent / every if every else 0.0 for name, spent in parts.items()},
            "samples_per_s": work.samples / total,
            "bytes_per_s": work.bytes / total,
        }


def about(channel: str, mode: str, workers: int) -> dict[str, Any]:
    """Return a record's first members."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "channel": channel,
        "mode": mode,
        "rank": int(os.environ.get("RANK", "0")),
        "workers": workers,
        "cores": cores,
    }


def line_of(record: Mapping[str, Any]) -> str:
    """Return a record as a line of the log, in the form that metric definitions match: `wait_share=([0-9.e+-]+)`."""
    texts = (f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in record.items())
    return " ".join(("waits", *texts))


def write_record(record: Mapping[str, Any], root: str | Path | None = None, host: str | None = None) -> None:
    """Write a record to stderr and, in a job, to `waits-<host>-<rank>.jsonl` among its outputs.

    A full disk or a closed log does not end the training.
    """
    with suppress(OSError):
        sys.stderr.write(f"{line_of(record)}\n")
        sys.stderr.flush()
    root = Path(root or os.environ.get(contract.BASE_DIR_VARIABLE) or contract.BASE_DIR)
    with suppress(OSError):
        if (root / contract.CONFIG_DIR).is_dir():
            folder = root / contract.OUTPUT_DATA_DIR
            folder.mkdir(parents=True, exist_ok=True)
            host = host or os.environ.get("SM_CURRENT_HOST", "algo-1")
            with (folder / f"waits-{host}-{record['rank']}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
