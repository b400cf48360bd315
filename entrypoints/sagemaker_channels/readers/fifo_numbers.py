"""Which FIFO belongs to which epoch: a host's record of a Pipe channel.

SageMaker counts a channel's FIFOs from 0 in every container, while a resumed job begins with a later epoch. So the first epoch
that a job asks for, whatever its number, is the FIFO that exists (`_0` in a new container; the one with the epoch's number if
there are several), and from then on both count up together. The DataLoader workers of each epoch are new processes, so the mapping
is recorded in a file beside the FIFOs, or in the temporary folder if that folder is read-only.

A record is valid while a process runs that it was made for. Then a new job begins: in a new container, or in this one if torchrun
restarts a failed training, which finds the FIFOs where the last one left them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
    for path in _paths(channel):
        try:
            record = json.loads(path.read_bytes())
            started = {int(process): str(start) for process, start in record["owners"].items()}
            return LastOpened(int(record["ahead"]), int(record["last"]), Processes(started=started))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no file, or not one of ours
            continue
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
    record = {"ahead": epoch - number, "last": number, "owners": {**known, **owners.started}}
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
