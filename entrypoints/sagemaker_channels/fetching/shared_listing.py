"""The listing files of a job on this machine: where they are, and which processes share them.

A file is in the temporary folder, and is removed when the process ends that began to read. A complete listing of 5,000 objects or
more is also copied to the folder of a training job's checkpoints. From there the job reads it when it is restarted, on another
machine, too: it then sees the same objects, and requests no page. Another job does not read it, and removes it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sagemaker_channels.fetching.listing import Listing, Store
from sagemaker_channels.job.process_identity import start_time

_PREFIX = "launcher-listing-"  # of the files' names

_job: str | None = None  # of this process and its children
_kept: Path | None = None  # what the names of kept files begin with


def job() -> str:
    """Return this job's identifier on this machine: the same in all ranks that torchrun starts on a host.

    The process that begins to read makes it; its workers get it by fork or by `join_job`.
    """
    global _job
    if _job is None:
        started_by = os.getppid() if "LOCAL_RANK" in os.environ else os.getpid()
        _job = f"{started_by}-{start_time(started_by)}"
        if os.environ.get("LOCAL_RANK", "0") == "0":
            atexit.register(_remove, _job, os.getpid())
            _remove_leftovers()
    return _job


def join_job(name: str) -> None:
    """Set the job of a process that was started by spawn."""
    global _job
    _job = name


def shared_listing(identity: Sequence[str | None], store: Store) -> Listing:
    """Return this job's listing of a store, and start it if no process has.

    Args:
        identity: What distinguishes the listing from others: endpoint, prefix and so on.
        store: How it is listed.
    """
    name = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    if _kept is not None:
        kept = _kept.with_name(_kept.name + name)
        store = store._replace(kept=kept)
        if kept.exists() and (listing := Listing(kept, store)).is_complete():
            return listing
    return Listing(Path(tempfile.gettempdir(), f"{_PREFIX}{job()}-{name}"), store)


def keep_in(folder: Path, job_name: str | None) -> None:
    """Keep this process's listings in this folder, if it exists, for the restarts of a job; without a job nowhere."""
    global _kept
    _kept = None
    if job_name is not None and folder.is_dir():
        ours = f".{_PREFIX}{hashlib.sha256(job_name.encode()).hexdigest()[:16]}-"
        _kept = folder / ours
        for file in folder.glob(f".{_PREFIX}*"):
            if not file.name.startswith(ours):
                _unlink(file)


def _remove_leftovers() -> None:
    """Remove the files of killed jobs. A job that is alive but not visible from here would list again."""
    for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}[0-9]*-*-*"):
        process, started = file.name.removeprefix(_PREFIX).split("-")[:2]
        if process.isdigit() and started != start_time(int(process)):
            _unlink(file)


def _remove(name: str, process: int) -> None:
    if os.getpid() == process:
        for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{name}-*"):
            _unlink(file)


def _unlink(file: Path) -> None:
    with suppress(OSError):  # another job has removed it, or it is another user's
        file.unlink()
