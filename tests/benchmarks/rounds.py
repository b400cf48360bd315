"""Measuring side by side: the same rounds for all, one after the other, so that what disturbs one disturbs all.

What else runs on a machine changes within seconds, so a figure by itself says little. What counts is the ratio to a peer, or to
a physical limit, in the same rounds: the median of the rounds' own ratios.
"""

from __future__ import annotations

import fcntl
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

# work, ours, peer_name, peer, limit (or None), unit, ratio, target: ours, the peer's and the limit's are medians of the rounds in
# `unit`; `ratio` is how many times better than the peer we are, and `target` what it must be at least, 0 for no target.
Row: TypeAlias = dict[str, Any]

ROUNDS = 5


def interleaved(works: Mapping[str, Callable[[], float | None]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of each round for each work, after one round that does not count.

    A work that returns a number has measured itself: seconds (a peer in a process of its own), or whatever all of them count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            own = work()
            taken = time.perf_counter() - start if own is None else own
            if number:
                seconds[name].append(taken)
    return seconds


def row(
    work: str, found: Mapping[str, list[float]], peer: str, target: float, *, unit: str = "s", per: float = 1.0
) -> Row:
    """A row of `ours` against another work of the same rounds; each figure is divided by `per` (records, say).

    A unit that ends in /s is a rate, of which more is better; of the others, less is.
    """
    pairs = zip(found["ours"], found[peer], strict=True)
    ratios = [ours / theirs if unit.endswith("/s") else theirs / ours for ours, theirs in pairs]
    medians = {name: statistics.median(values) / per for name, values in found.items()}
    return {
        "work": work,
        "ours": medians["ours"],
        "peer_name": peer,
        "peer": medians[peer],
        "limit": medians.get("limit"),
        "unit": unit,
        "ratio": statistics.median(ratios),
        "target": target,
    }


def rate(work: Callable[[], float]) -> float:
    """What a work did, as it returns it, per second."""
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def through_fifo(path: Path, folder: Path, read: Callable[[Any], object]) -> None:
    """Has `cat` write a file into a FIFO and `read` read it there, unbuffered, in a pipe of 1 MiB as ours are."""
    fifo = folder / "fifo"
    if not fifo.exists():
        os.mkfifo(fifo)
    with subprocess.Popen(["sh", "-c", f"exec cat '{path}' > '{fifo}'"]), fifo.open("rb", buffering=0) as stream:
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 1 << 20)
        read(stream)


def raw(stream: Any) -> None:
    """Reads a stream to its end into one buffer: what no reader can be faster than."""
    buffer = memoryview(bytearray(1 << 20))
    while stream.readinto(buffer):
        pass


def exhaust(samples: Any) -> int:
    """Takes all samples, keeping none; how many."""
    count = 0
    for _ in samples:
        count += 1
    return count


class Peer:
    """A peer in a Python of its own (it may clash with our packages): a script that answers each line with `seconds <number>`."""

    def __init__(self, python: str, script: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._lock = threading.Lock()

    def __call__(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with self._lock:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
            for line in self.process.stdout:  # the SDK says other things, too
                if line.startswith(b"seconds "):
                    return float(line[8:])
        raise RuntimeError("the peer has ended: try its script by hand")

    def close(self) -> None:
        self.process.communicate()
