"""Processes that others work for: who they are, whether they still run, and what tells one from a later one of its number.

A Pipe is read for them, and a listing kept: when the last of them has ended, so has what was remembered for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def owner_process() -> int:
    """The process for which this one reads: itself, or the one that started it as its worker."""
    from multiprocessing import parent_process  # not at the top: it adds a module of its own to those there are

    parent = parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


class Processes:
    """Processes by their number and the time they started: numbers are given out again."""

    def __init__(self, processes: Iterable[int] = (), started: Mapping[int, str] | None = None) -> None:
        """Those of `started`, as another one's `started` was, whether they run or not; and `processes`."""
        self.started: dict[int, str] = dict(started or {})
        for process in processes:
            self.add(process)

    def add(self, process: int) -> None:
        """One more, if it is there."""
        self.started[process] = start_time(process)

    def any_running(self) -> bool:
        """Whether one of them still runs; the others are forgotten."""
        self.started = {process: start for process, start in self.started.items() if start == start_time(process) != ""}
        return bool(self.started)


def start_time(process: int) -> str:
    """What tells a process from a later one of its number; empty where there is none, or it has ended."""
    try:
        after_name = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() or not _is_there(process) else sys.platform
    return "" if after_name[0] in (b"Z", b"X") else after_name[19].decode()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
