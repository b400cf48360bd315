"""What recording waits costs: the CPU of an epoch with it and with LAUNCHER_WAITS=0, in turn.

`python tests/benchmarks/bench_waits.py` prints it for each loop. Processes that are preempted look slow, so CPU seconds are
compared, of the loop and its workers. In parentheses is where the median of endless rounds is, with 95 % probability.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from local_job import mounted_job, train_folder
from rounds import exhaust, interleaved
from torch.utils.data import DataLoader

from sagemaker_channels import ChannelDataset, ChannelMapDataset, ThreadLoader, contract, timed

FILES = {100: 20_000, 10_000: 10_000, 100_000: 2500}  # by size
BATCH, ROUNDS = 32, 41
LOOPS: Mapping[str, Callable[[Any], Any]] = {
    "dataset": lambda job: ChannelDataset("train", environment=job),
    "ThreadLoader(2)": lambda job: ThreadLoader(_dataset(job), BATCH, num_workers=2, collate_fn=list),
    "DataLoader(0)": lambda job: DataLoader(_dataset(job), BATCH, collate_fn=list),
    "DataLoader(2)": lambda job: DataLoader(_dataset(job), BATCH, collate_fn=list, num_workers=2),
    "timed(DataLoader(2))": lambda job: timed(DataLoader(_dataset(job), BATCH, collate_fn=list, num_workers=2)),
    "map-style": lambda job: DataLoader(ChannelMapDataset("train", environment=job), BATCH, collate_fn=list),
}


def _dataset(job: Any) -> ChannelDataset:
    return ChannelDataset("train", environment=job)


def cpu_seconds(job: Any, loop: str, switch: str) -> float:
    """Return the CPU of an epoch, with its workers'."""
    os.environ[contract.WAITS_VARIABLE] = switch
    before = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    exhaust(LOOPS[loop](job))
    after = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(
        now.ru_utime + now.ru_stime - then.ru_utime - then.ru_stime for now, then in zip(after, before, strict=True)
    )


def main() -> None:
    """Print each loop's CPU per sample, and what recording adds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # the records
    for size, count in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            job = mounted_job(Path(folder), None)
            for number in range(count):
                (train_folder(Path(folder)) / f"{number:06d}").write_bytes(bytes(size))
            for loop in sys.argv[1:] or LOOPS:
                works = {name: partial(cpu_seconds, job, loop, switch) for name, switch in (("on", "1"), ("off", "0"))}
                found = interleaved(works, ROUNDS)
                ratios = sorted(on / off for on, off in zip(found["on"], found["off"], strict=True))
                middle, reach = ROUNDS // 2, math.isqrt(ROUNDS)
                median, low, high = (100 * (ratios[at] - 1) for at in (middle, middle - reach, middle + reach))
                each = 1e6 * statistics.median(found["off"]) / count
                print(
                    f"{size:7,} bytes, {loop:20}: {each:6.1f} us; recording adds {median:+.1f} % ({low:+.1f} to {high:+.1f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
