"""Which FIFO belongs to which epoch: a host's record of a Pipe channel.

SageMaker counts a channel's FIFOs from 0 in every container, while a resumed job begins with a later epoch. So the first epoch
that a job asks for, whatever its number, is the FIFO that exists (`_0` in a new container; the one with the epoch's number if
there are several), and from then on both count up together. The DataLoader workers of each epoch are new processes, so the mapping
is recorded in a file beside the FIFOs, or in the temporary folder if that folder is read-only.

A record is valid while a process runs that it was made for. Then a new job begins: in a new container, or in this one if torchrun
restarts a failed training, which finds the FIFOs where the last one left them.

If several processes of a host read a channel, its record also has their requests (host_readers.py) and their ring (tee.py).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import Processes


@dataclass(frozen=True)
class LastOpened:
    """The last FIFO that was opened. `ahead` is the job's epoch minus the FIFO's number."""

    ahead: int
    last: int
    owners: Processes


def last_opened(channel: Channel) -> LastOpened | None:
    """Return the channel's record, valid or not; None if there is none."""
    record = load(channel)
    try:
        started = {int(process): str(start) for process, start in record["owners"].items()}
        return LastOpened(int(record["ahead"]), int(record["last"]), Processes(started=started))
    except (ValueError, KeyError, TypeError, AttributeError):  # No FIFO was opened, or it is not one of ours.
        return None


def record_opened(channel: Channel, epoch: int, number: int, owners: Processes) -> None:
    """Record that a FIFO was opened.

    Args:
        channel: The Pipe channel.
        epoch: The epoch, counted as the job counts them.
        number: The FIFO's number.
        owners: The processes that it is read for; those of a valid record are added.
    """
    before = last_opened(channel)
    known = before.owners.started if before is not None and before.owners.any_running() else {}
    opened = {"ahead": epoch - number, "last": number, "owners": {**known, **owners.started}}
    store(channel, {**load(channel), **opened})


def load(channel: Channel) -> dict[str, Any]:
    """Return the channel's record; empty if there is none."""
    for path in _paths(channel):
        with suppress(OSError, ValueError):
            record = json.loads(path.read_bytes())
            if isinstance(record, dict):
                return record
    return {}


def store(channel: Channel, record: Mapping[str, Any]) -> None:
    """Replace the channel's record."""
    for path in _paths(channel):
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            unfinished.write_text(json.dumps(record))
            unfinished.replace(path)
            return
        except OSError:
            # Without a record an epoch is the FIFO that exists: the same one if epochs are read in order.
            with suppress(OSError):
                unfinished.unlink()


# A thread that has it can take it again: Python may finalize a stream meanwhile.
_mutex = threading.RLock()


@contextmanager
def locked(channel: Channel) -> Iterator[None]:
    """Exclude the other readers of this host from the channel's record. The folder is locked, so that no lock file is needed."""
    folder = os.open(channel.path.parent, os.O_RDONLY)
    try:
        with _mutex:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # A process forked meanwhile holds the descriptor, too.
        os.close(folder)


def _renew_mutex() -> None:
    global _mutex
    _mutex = threading.RLock()  # Another thread may have had it when this process was forked.


os.register_at_fork(after_in_child=_renew_mutex)


def _paths(channel: Channel) -> Iterator[Path]:
    """Return the paths where a record can be; hosts of a local run share the temporary folder, so its name is not enough."""
    yield channel.path.with_name(contract.epochs_name(channel.name))
    with suppress(OSError):
        folder = channel.path.parent.stat()
        what = f"{folder.st_dev} {folder.st_ino} {channel.path.absolute()} {os.getuid()}"
        name = f"launcher-epochs-{hashlib.sha256(what.encode()).hexdigest()[:24]}"
        path = Path(tempfile.gettempdir()) / name
        if not path.is_symlink() and (not path.exists() or path.stat().st_uid == os.getuid()):
            yield path
