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
from dataclasses import replace
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import Any

from launcher.advice.facts import Observed
from launcher.advice.ways import WAYS
from launcher.aws.threads import start
from launcher.errors import InputError
from launcher.local.channels.objects import Objects
from launcher.survey.inventory import Sampled
from sagemaker_channels.tools.results import FILE, summary

STREAMS = 16
_LARGE = 1 << 20  # bytes; a request for less takes longer than its bytes
_NOT_S3 = ("file", "plain-file", "efs", "fsx")  # ways that read a disk or a file system


def probe(objects: Objects, sample: Sequence[Sampled], seconds: float, before: Observed) -> Observed:
    """Read objects of a sample for some seconds, and return what was seen, in place of what was seen before.

    Raises RefusedError if the objects cannot be read.
    """
    part, large = seconds / 4, [each for each in sample if each.bytes >= _LARGE]

    def first_byte(each: Sampled, end: float) -> int:
        return len(objects.head(each.place, 1))

    def whole(each: Sampled, end: float) -> int:
        count = 0
        for chunk in objects.read(each.place):
            count += len(chunk)
            if time.monotonic() > end:
                break
        return count

    heads, _ = _repeated(first_byte, sample, 1, part)
    latency, seen = statistics.median(took for took, _ in heads), dict[str, float]()
    heads, elapsed = _repeated(first_byte, sample, STREAMS, part)
    seen["requests_per_s"] = len(heads) / elapsed
    for name, streams in (("stream_bytes_per_s", 1), ("bytes_per_s", STREAMS)) if large else ():
        read, elapsed = _repeated(whole, large, streams, part)
        waited = latency * len(read) / streams
        seen[name] = sum(count for _, count in read) / max(elapsed - waited, elapsed / 10)
    today = datetime.now(timezone.utc).date()
    source = f"a probe of {seconds:.0f} s on {today} from this machine, which is not the job's instance"
    sources = "; ".join(filter(None, (before.source, source)))
    return replace(before, latency_s=latency, streams=STREAMS, source=sources, **seen)


def _repeated(
    work: Callable[[Sampled, float], int], sample: Sequence[Sampled], streams: int, seconds: float
) -> tuple[list[tuple[float, int]], float]:
    """Read the sample in turn for some seconds; return seconds and bytes of each object, and the seconds of all."""
    done: list[tuple[float, int]] = []
    numbers, began = itertools.count(), time.monotonic()
    end = began + seconds

    def repeat() -> None:
        while not done or time.monotonic() < end:
            before = time.monotonic()
            count = work(sample[next(numbers) % len(sample)], end)
            done.append((time.monotonic() - before, count))

    for each in [start(repeat) for _ in range(streams)]:
        each.result()
    return done, time.monotonic() - began


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
    seen: dict[str, float] = {"samples_per_s": batch / statistics.median(steps)} if steps else {}
    streams = 0
    if is_empty and form == "objects" and statistics.median(sizes) < _LARGE:
        if "fast-file" in rows:  # each worker reads one object at a time
            seen["latency_s"] = workers / rows["fast-file"]["samples_per_second"]
    elif is_empty:
        name, rate = max(((name, row["megabytes_per_second"] * 1e6) for name, row in rows.items()), key=itemgetter(1))
        seen["bytes_per_s"] = rate
        streams = workers if name == "fast-file" else int(WAYS["S3Connector"].streams or 0)
    return Observed(source=f"{file}, measured on {date}", streams=streams, **seen)
