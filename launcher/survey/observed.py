"""What was observed of the data: by a probe, or by `launch measure` in its measure.json.

A probe reads a sample of the real objects for some time, from here. Here is rarely the job's instance, or even its region;
`Observed.source` says so.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import replace
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import Any

from launcher.advice.constants import VALUES
from launcher.advice.facts import Observed
from launcher.aws.threads import start
from launcher.errors import InputError
from launcher.local.data.object_stores import Objects
from launcher.survey.inventory import Sampled
from sagemaker_channels.tools.results import FILE, summary

STREAMS = 16
_LARGE = 1 << 20  # bytes; a request for less takes longer than its bytes
_NOT_S3 = ("file", "plain-file", "efs", "fsx")  # ways that read a disk or a file system
_PARTS = 4


class Probe:
    """Measurements that share the time equally. Ctrl-C ends them, and what was seen is kept."""

    def __init__(self, objects: Objects, sample: Sequence[Sampled], seconds: float) -> None:
        self.interrupted = False
        self._objects, self._sample, self._seconds = objects, sample, seconds
        self._large = [each for each in sample if each.bytes >= _LARGE]
        self._end = 0.0  # of the measurement that runs

    def run(self, before: Observed) -> Observed:
        """Return what was seen, which replaces what was seen before. Raises RefusedError if the objects cannot be read."""
        began, seen = time.monotonic(), dict[str, float]()
        heads, _ = self._repeat(1, self._first_byte, self._sample)
        latency = statistics.median(seconds for seconds, _ in heads) if heads else None
        if not self.interrupted:
            heads, elapsed = self._repeat(STREAMS, self._first_byte, self._sample)
            seen["requests_per_s"] = len(heads) / elapsed
        for name, streams in (("stream_bytes_per_s", 1), ("bytes_per_s", STREAMS)):
            if self._large and not self.interrupted:
                read, elapsed = self._repeat(streams, self._whole, self._large)
                waited = (latency or 0) * len(read) / streams
                seen[name] = sum(count for _, count in read) / max(elapsed - waited, elapsed / 10)
        seconds, today = time.monotonic() - began, datetime.now(timezone.utc).date()
        source = f"a probe of {seconds:.0f} s on {today} from this machine, which is not the job's instance"
        sources = "; ".join(each for each in (before.source, source) if each)
        return replace(
            before,
            latency_s=latency,
            streams=STREAMS,
            source=sources,
            **{name: rate for name, rate in seen.items() if rate},
        )

    def _repeat(
        self, streams: int, work: Callable[[Sampled], int], sample: Sequence[Sampled]
    ) -> tuple[list[tuple[float, int]], float]:
        """Read the sample in turn; return seconds and bytes of each object, and the seconds of all."""
        done: list[tuple[float, int]] = []
        numbers = itertools.count()
        began = time.monotonic()
        self._end = began + self._seconds / _PARTS

        def repeat() -> None:
            while not done or time.monotonic() < self._end:
                before = time.monotonic()
                count = work(sample[next(numbers) % len(sample)])
                done.append((time.monotonic() - before, count))

        try:
            futures = [start(repeat) for _ in range(streams)]
            wait(futures)
            for each in futures:
                each.result()
        except KeyboardInterrupt:
            self.interrupted, self._end = True, 0.0
        return done.copy(), time.monotonic() - began

    def _first_byte(self, each: Sampled) -> int:
        return len(self._objects.head(each.place, 1))

    def _whole(self, each: Sampled) -> int:
        count = 0
        for chunk in self._objects.read(each.place):
            count += len(chunk)
            if time.monotonic() > self._end:
                break
        return count


def read_measured(file: Path) -> Observed:
    """Return what was measured: time per object or bytes per second, and with a step how fast the model is.

    Raises:
        InputError: The file cannot be read, or is no measure.json with a measured way.
    """
    try:
        results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        rows = {row["name"]: row for row in summary(results) if "rounds" in row and row["name"] not in _NOT_S3}
        steps = [run["cached_step"] for way in results["ways"] for run in way["runs"] if run.get("cached_step")]
        sizes = [way["bytes"] / way["samples"] for way in results["ways"] if way.get("samples")]
        date, workers, batch = results["machine"]["date"], max(results["num_workers"], 1), results["batch_size"]
        form, is_empty = results["format"], not results["step"]
    except OSError as error:
        raise InputError(f"--measured {file}: cannot be read: {error.strerror}; correct the path") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"--measured {file}: is no {FILE} of `launch measure`; it is among the outputs of its job"
        ) from None
    if not rows and not steps:
        raise InputError(
            f"--measured {file}: no way that reads S3 was measured; measure fast-file or connector-iterable"
        )
    seen: dict[str, float] = {}
    streams = 0
    if steps:
        seen["samples_per_s"] = batch / statistics.median(steps)
    if is_empty and form == "objects" and statistics.median(sizes) < _LARGE:
        if "fast-file" in rows:  # each worker reads one object at a time
            seen["latency_s"] = workers / rows["fast-file"]["samples_per_second"]
    elif is_empty:
        name, rate = max(((name, row["megabytes_per_second"] * 1e6) for name, row in rows.items()), key=itemgetter(1))
        seen["bytes_per_s"], streams = rate, workers if name == "fast-file" else int(VALUES["reader_streams"])
    return Observed(source=f"{file}, measured on {date}", streams=streams, **seen)
