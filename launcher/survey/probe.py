"""A probe: a sample of the real objects is read for some time, from here.

Here is rarely the job's instance, or even its region; `Observed.source` says so.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import replace
from datetime import datetime, timezone

from launcher.advice.facts import Observed
from launcher.aws.threads import start
from launcher.local.data.object_stores import Objects
from launcher.survey.inventory import Sampled

STREAMS = 16
_LARGE = 1 << 20  # bytes; a request for less takes longer than its bytes
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
