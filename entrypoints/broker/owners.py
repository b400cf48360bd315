"""The processes for which a broker works: when the last of them has ended it ends, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class Owners:
    """Processes by their number and the time they started: numbers are given out again."""

    def __init__(self) -> None:
        self._started: dict[int, str] = {}

    def add(self, process: int) -> None:
        """One more, if it is there."""
        self._started[process] = _start_time(process)

    def any_left(self) -> bool:
        """Whether one of them still runs."""
        self._started = {
            process: start for process, start in self._started.items() if start == _start_time(process) != ""
        }
        return bool(self._started)


def _start_time(process: int) -> str:
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
