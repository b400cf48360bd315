"""One run of one way, in a process of its own: the digest of its samples, or how long a loop waits for its batches."""

# ruff: noqa: TID253 - it runs torch's loaders

from __future__ import annotations

import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, repeat
from pkgutil import resolve_name
from typing import Any

from torch.utils.data import DataLoader, Dataset

from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.tools.ways import Source, Way, plain, step_seconds

Step = Callable[[Any], object]

INTERVAL = 100  # steps whose time is one figure; of a shorter epoch a fifth of its steps, scaled
_CACHED_STEPS = 999  # at most, of the same batch


def batches_of(way: Way, source: Source) -> Iterable[Sequence[Any]]:
    """Return the way's own loader, or a DataLoader of its dataset; both yield lists of items."""
    opened = way.open(source)
    if not isinstance(opened, Dataset):
        return opened  # type: ignore[no-any-return]
    return DataLoader(
        opened,
        source.batch_size,
        num_workers=source.workers,
        collate_fn=list,
        multiprocessing_context=way.start_method if source.workers else None,
    )


def digest(way: Way, source: Source) -> dict[str, Any]:
    """Read everything by a way, and return the samples' count, bytes and digest."""
    tally = Tally()
    with source.exits:
        for batch in batches_of(way, source):
            for item in batch:
                tally.add(plain(item))
    return {"samples": tally.count, "bytes": tally.bytes, "digest": tally.hex}


def measure(way: Way, source: Source, step: Step | None = None) -> dict[str, Any]:
    """Read everything by a way, in a loop of training steps, and return what that took, in seconds and samples.

    `step` does the work of a training step with a batch; without one the step is empty. `p50`, `p99` and `mean_100` leave the
    first batch or interval out. With a step, `data_share` is the part of its time that streaming adds to the same step over one
    cached batch.
    """
    cpu, begin = _cpu_seconds(), time.perf_counter()
    waits, ends, samples, first = [], [], 0, None
    with source.exits:
        before = begin
        for batch in batches_of(way, source):
            waits.append(time.perf_counter() - before)
            samples += len(batch)
            first = first or batch
            if step is not None:
                step(batch)
            ends.append(before := time.perf_counter())
    if not ends:
        return {"samples": 0}
    found = {
        "samples": samples,
        "steps": len(ends),
        "seconds": ends[-1] - begin,
        "first_batch": waits[0],
        "p50": _quantile(waits[1:], 0.5),
        "p99": _quantile(waits[1:], 0.99),
        "cpu_seconds": _cpu_seconds() - cpu,
        **intervals(ends),
    }
    if step is not None and len(ends) > 1:
        steps = min(_CACHED_STEPS, len(ends) - 1)
        begin = time.perf_counter()
        for cached in repeat(first, steps):
            step(cached)
        cached_step = (time.perf_counter() - begin) / steps
        streamed_step = (ends[-1] - ends[0]) / (len(ends) - 1)
        found |= {"cached_step": cached_step, "streamed_step": streamed_step}
        found["data_share"] = max(0.0, 1 - cached_step / streamed_step)
    return found


def intervals(ends: Sequence[float]) -> dict[str, Any]:
    """Return mean and variance of the seconds per 100 steps that end at these times, without the first interval."""
    interval = min(INTERVAL, max(1, len(ends) // 5))
    marks = ends[interval - 1 :: interval]
    times = [(end - begin) * INTERVAL / interval for begin, end in pairwise(marks)]
    return {
        "interval": interval,
        "mean_100": statistics.fmean(times) if times else None,
        "variance_100": statistics.variance(times) if len(times) > 1 else None,
    }


def _quantile(values: Sequence[float], part: float) -> float | None:
    """Return the smallest value that `part` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


def _cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def step_of(text: str) -> Step:
    """Return the step of `module:function`, or of a time such as `20ms`. Raises ValueError; a step that fails does so, too."""
    if (seconds := step_seconds(text)) is not None:
        return lambda batch: time.sleep(seconds)
    try:
        step = resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"--step {text}: cannot be imported: {error}; write module:function, or a time: 20ms"
        ) from error
    if not callable(step):
        raise ValueError(f"--step {text}: it is not a function of a batch, but {type(step).__name__}")

    def named(batch: Any) -> None:
        try:
            step(batch)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[:2]  # this function's, and the step's if it is in Python
            place = f"{frames[-1].filename}:{frames[-1].lineno}"
            raise ValueError(f"--step {text}: {type(error).__name__}: {error} ({place})") from error

    return named
