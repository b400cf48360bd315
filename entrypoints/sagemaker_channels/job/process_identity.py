"""Which processes a Pipe is read or a listing kept for, whether they still run, and a file that they can share.

A process is identified by its number and its start time, because numbers are reused.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

_ENDED = (b"Z", b"X")  # states of a process that only waits to be reaped

# What Open MPI's mpirun sets for a rank, by torchrun's name for it.
_OF_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def unnamed_file(name: str) -> int:
    """Return the descriptor of a new file without a path: in memory on Linux, elsewhere on the disk for temporary files."""
    if sys.platform == "linux":
        return os.memfd_create(name)
    else:  # noqa: RET505 - mypy knows no platform after an `if`
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            return os.dup(file.fileno())


def rank_variable(name: str) -> str | None:
    """Return a variable of the launcher that started this process, by torchrun's name; torchrun can run under mpirun."""
    return os.environ.get(name) or (None if "RANK" in os.environ else os.environ.get(_OF_MPI[name]))


def owner_process() -> int:
    """Return the process that this one reads for: itself, or the one that started it as its worker."""
    from multiprocessing import parent_process  # importing it adds `__mp_main__` to sys.modules

    parent = parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


def ended_ranks() -> list[int]:
    """Return the ranks of this host that have ended, if torchrun has started them; it waits for the others if one exits with 0.

    The processes that it has started say which ranks they are. If one of them does not, nothing is known.
    """
    rank, own, count = (os.environ.get(name, "") for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    try:
        launcher = int((stat(owner_process()) or [b"", b""])[1])
        children = " ".join(path.read_text() for path in Path(f"/proc/{launcher}/task").glob("*/children")).split()
        running = [_local_rank(int(child)) for child in children if start_time(int(child))]
        if own not in running or "" in running or _local_rank(launcher):  # Otherwise it is a rank's own shell.
            return []
        return [int(rank) - int(own) + each for each in range(int(count)) if str(each) not in running]
    except (OSError, ValueError):
        return []


def _local_rank(process: int) -> str:
    """Return what torchrun has set for a process; empty if it has not started it. Raises OSError for another user's."""
    found = re.search(rb"(?:^|\0)LOCAL_RANK=(\d+)\0", Path(f"/proc/{process}/environ").read_bytes())
    return found[1].decode() if found else ""


def is_running(process: int, start: str) -> bool:
    """Return whether the process runs that had this number and this start time."""
    return start == start_time(process) != ""


@cache
def file_name_of(process: int) -> str:
    """Return how the names of the files of this process, or of the one that started it, begin: its number, `-`, start time."""
    return f"{process}-{start_time(process)}"


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove the files of processes that have ended, which are named PREFIX, `file_name_of` the process, `-` and more.

    A process that runs but is not visible from here, as in another container, has to do without.
    """
    for file in folder.glob(f"{prefix}[0-9]*-*-*"):
        process, started = file.name.removeprefix(prefix).split("-")[:2]
        if process.isdigit() and not is_running(int(process), started):
            with suppress(OSError):  # another process has removed it, or it is another user's
                file.unlink()


def start_time(process: int) -> str:
    """Return what distinguishes a process from later ones with its number; empty if there is none, or it has ended."""
    fields = stat(process)
    if fields is not None:
        return "" if fields[0] in _ENDED else fields[19].decode()
    if not Path("/proc/self/stat").exists():
        with suppress(OSError):
            os.kill(process, 0)
            return sys.platform
    return ""


def processes() -> list[int]:
    """Return the processes of this machine; none without /proc."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def stat(process: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat after the name, which can hold anything: state, parent and so on; None without any."""
    try:
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
