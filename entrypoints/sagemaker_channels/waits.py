"""How long a training loop waits for its samples, and for what; written as log lines and as JSON lines among the job's outputs.

    waits channel=train mode=FastFile ... steps=100 step_s=0.031 wait_s=0.0127 ... wait_share=0.41 source_share=0.3 ...

Datasets and ThreadLoader record by themselves, and `timed` records any other loader. A dataset in a DataLoader's workers sees how
busy these are, but not how long the loop waits for them. LAUNCHER_WAITS=0 switches everything off.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from sagemaker_channels import contract
from sagemaker_channels.errors import expect
from sagemaker_channels.job.process_identity import rank_variable
from sagemaker_channels.meter import Meter, Work, count_transform, total
from sagemaker_channels.sample import weight

F = TypeVar("F", bound=Callable[..., Any] | None)
Loader = TypeVar("Loader", bound=Iterable[Any])
Record = dict[str, Any]
Write = Callable[[Record], object]

_RECORD_ITEMS = 100  # steps of a record, at least
_FIRST_SECONDS = 1.0  # until the first record of a loop, unless it ends before
_RECORD_SECONDS = 10.0  # between two; a loop of short steps must not flood the log


def are_recorded() -> bool:
    return os.environ.get(contract.WAITS_VARIABLE) != "0"


def timed_transform(transform: F) -> F:
    """Return the transform such that its time is counted if waits are recorded; None for None."""
    if transform is None or not are_recorded():
        return transform
    return cast("F", partial(count_transform, transform))  # pickles for workers that are started by spawn


class Waits:
    """The waits of one loop since its last record; in a DataLoader's worker, how busy all of its workers are.

    `about` has a record's first members for each channel, and `write` gets the records. `done` returns the work so far, and
    `publish` adds to that what this thread does; without it, only others do.
    """

    def __init__(
        self,
        about: Sequence[Record],
        write: Write,
        done: Callable[[], list[Work]],
        publish: Callable[[Sequence[Work]], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._about, self._write, self._done, self._publish, self._clock = about, write, done, publish, clock
        self._in_worker = publish is not None and about[0]["workers"] > 0
        self._least, self._loop = _FIRST_SECONDS, Work()
        self._before, self._ticks = done(), _processor_ticks()

    @property
    def meter(self) -> Meter:
        return Meter(self._note, len(self._about) if self._publish else 1, self._flush, self._clock)

    def _note(self, works: Sequence[Work]) -> None:
        if self._publish is not None:
            self._publish(works)
        self._loop = total((self._loop, *works))
        if self._loop.items >= _RECORD_ITEMS and _seconds(self._loop) >= self._least:
            self._flush()

    def _flush(self) -> None:
        """Write the records of the steps since the last ones, if there are any."""
        if self._loop.items:
            before, self._before = self._before, self._done()
            works = list(map(_since, self._before, before))
            for record in self._of_workers(works) if self._in_worker else self._of_loop(works):
                self._write(record)
            self._least, self._loop = _RECORD_SECONDS, Work()

    def _of_loop(self, works: list[Work]) -> Iterator[Record]:
        """Yield a record for each channel. The loop's waits are divided among them and their causes as the time of the work is."""
        loop = self._loop
        waited, seconds = loop.busy + loop.blocked, _seconds(loop) or 1e-9
        making = sum(work.busy + work.blocked for work in works)
        workers, threads, cores = (self._about[0][name] for name in ("workers", "threads", "cores"))
        # Workers have to wait while the loop does its own work; if they wait longer, batches are being collated and sent. Without
        # workers, what the samples do not take is collating, which threads count themselves.
        rest = sum(work.idle for work in works) - workers * loop.idle if workers else waited - making
        rest = 0.0 if threads else max(0.0, rest)
        parts = list(map(_parts, works))
        for spent, work in zip(parts, works, strict=True):
            spent["handover" if workers else "transform"] += rest * (work.busy + work.blocked) / (making or 1.0)
        every = sum(sum(spent.values()) for spent in parts)
        then, self._ticks = self._ticks, _processor_ticks()
        busy, ticks = (now - before for now, before in zip(self._ticks, then, strict=True))
        of_all = {**({"busy_cores": cores * busy / ticks} if ticks else {}), "own_share": loop.idle / seconds}
        for about, work, spent in zip(self._about, works, parts, strict=True):
            shares = {f"{name}_share": waited / seconds * part / (every or 1.0) for name, part in spent.items()}
            share = sum(shares.values()) if every else waited / seconds
            steps = {"steps": round(loop.items), "step_s": seconds / loop.items, "wait_s": share * seconds / loop.items}
            yield {**about, **steps, **of_all, "wait_share": share, **shares, **_rates(work, seconds)}

    def _of_workers(self, works: list[Work]) -> Iterator[Record]:
        busy, every = sum(work.busy + work.blocked for work in works), sum(map(_seconds, works)) or 1e-9
        seconds = _seconds(self._loop)  # none of the last items, which are not timed
        for about, work in zip(self._about, works, strict=True):
            if work.items and seconds:
                spent = {"busy": busy, **_parts(work)}
                shares = {f"{name}_share": part / every for name, part in spent.items() if name != "handover"}
                yield {**about, **shares, **_rates(work, seconds)}


def _processor_ticks() -> tuple[int, int]:
    """Return how long this process's processors have been busy, with whatever, and that plus how long idle; zeros if unknown."""
    busy = idle = 0
    if sys.platform != "linux":
        return 0, 0
    with suppress(OSError):
        usable = {b"cpu%d" % number for number in os.sched_getaffinity(0)}
        for line in Path("/proc/stat").read_bytes().splitlines():
            if not line.startswith(b"cpu"):
                break  # a busy machine's interrupts fill a long line
            name, *fields = line.split()
            if name in usable:
                times = [int(each) for each in fields[:8]]  # user, nice, system, idle, waiting for a disk, ...
                idle += sum(times[3:5])
                busy += sum(times) - sum(times[3:5])
    return busy, busy + idle


def _seconds(work: Work) -> float:
    return work.busy + work.blocked + work.idle


def _since(now: Work, then: Work) -> Work:
    return total((now, Work(*(-each for each in then.numbers()))))


def _parts(work: Work) -> dict[str, float]:
    """Return the seconds of a channel's work by what they were spent on."""
    parse = max(0.0, work.busy - work.transform)
    return {"source": work.blocked, "parse": parse, "transform": work.transform, "handover": 0.0}


def _rates(work: Work, seconds: float) -> dict[str, float]:
    return {"samples_per_s": work.samples / seconds, "bytes_per_s": work.bytes / seconds}


def about(channel: str, mode: str, workers: int, threads: int = 0) -> Record:
    """Return a record's first members; `workers` are processes."""
    cores = os.cpu_count()
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    rank = int(rank_variable("RANK") or 0)
    return {"channel": channel, "mode": mode, "rank": rank, "workers": workers, "threads": threads, "cores": cores}


def line_of(record: Mapping[str, Any], kind: str = "waits") -> str:
    """Return a record as a line of the log, in the form that metric definitions match: `wait_share=([0-9.e+-]+)`."""
    texts = (f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in record.items())
    return " ".join((kind, *texts))


class RecordWriter:
    """Writes records to `<kind>-<host>-<rank>.jsonl` among a job's outputs and, at most once in `seconds` for a channel, to stderr.

    A full disk or a closed log does not end the training. `in_jobs_only`: a notebook's output stays as it is.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        host: str | None = None,
        kind: str = "waits",
        seconds: float = _RECORD_SECONDS,
        *,
        in_jobs_only: bool = False,
    ) -> None:
        self._kind, self._seconds, self.in_jobs_only = kind, seconds, in_jobs_only
        self._root = Path(root or os.environ.get(contract.BASE_DIR_VARIABLE) or contract.BASE_DIR)
        self._host = host or os.environ.get("SM_CURRENT_HOST", "algo-1")
        self._next_line: dict[str, float] = {}
        self._is_job = (self._root / contract.CONFIG_DIR).is_dir()

    def __call__(self, record: Mapping[str, Any]) -> None:
        channel, now = record["channel"], time.monotonic()
        if now >= self._next_line.get(channel, 0.0) and (self._is_job or not self.in_jobs_only):
            self._next_line[channel] = now + self._seconds
            with suppress(OSError):
                sys.stderr.write(f"{line_of(record, self._kind)}\n")
                sys.stderr.flush()
        if self._is_job:
            folder = self._root / contract.OUTPUT_DATA_DIR
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / f"{self._kind}-{self._host}-{record['rank']}.jsonl").open("a") as file:
                    file.write(f"{json.dumps(record)}\n")


class Timed:
    """A loader whose loops are timed; everything else is the loader's."""

    def __init__(self, loader: Any, channel: str | None, write: Write | None) -> None:
        self._loader, self._channel, self._write, self._log = loader, channel or "loader", write, RecordWriter()
        self._shared = getattr(getattr(loader, "dataset", None), "_channel_work", None)  # of our datasets
        if self._shared is not None:
            self._shared.is_timed = True

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if not are_recorded():
            yield from self._loader
            return
        workers = getattr(self._loader, "num_workers", 0)
        if self._shared is not None:
            # `chain` starts the workers when the first batch is waited for.
            yield from self._shared.loop(workers, write=self._write).over(chain.from_iterable([self._loader]))
            return
        seen = Work()

        def count() -> Iterator[Any]:
            for batch in self._loader:
                seen.samples += getattr(self._loader, "batch_size", None) or 1
                seen.bytes += weight({"": tuple(batch) if isinstance(batch, list) else batch})
                yield batch

        abouts = [about(self._channel, "unknown", workers)]
        yield from Waits(abouts, self._write or self._log, lambda: [replace(seen)]).meter.over(count())


def timed(loader: Loader, channel: str | None = None, *, write: Write | None = None) -> Loader:
    """Return the loader such that each loop over it records its waits.

    Args:
        loader: Any iterable of batches; for a DataLoader of our datasets, the records say what was waited for, too.
        channel: The name in the records, if the loader's dataset has none.
        write: Receives the records instead of the log and the outputs.

    Raises:
        TypeError: The loader cannot be iterated over.
    """
    expect(isinstance(loader, Iterable), "loader", loader, "a loader, or another iterable of batches")
    if getattr(loader, "is_timed", False) is True:  # a ThreadLoader, which records by itself
        return loader
    return cast("Loader", Timed(loader, channel, write))
