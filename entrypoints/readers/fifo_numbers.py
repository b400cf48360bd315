"""Which FIFO an epoch is: what a host remembers of a Pipe channel.

SageMaker counts a channel's FIFOs from 0 in every container, while a job that goes on after an interruption begins with a
later epoch. So the first epoch that a job asks for, whatever its number, is the FIFO that is there (`_0` in a new container;
the one of its number, where there are several); from then on both count up together. Many processes ask, one after the
other or side by side: each DataLoader worker of each epoch is a new one. So it is noted in a file beside the FIFOs, or
where nobody may write there in the temporary folder.

A note is valid while a process for which it was made runs. After that a job begins anew: in a new container, or in this
one, where a training that failed is started again (torchrun does so) and finds the FIFOs where the last one left them.
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

from entrypoints import contract
from entrypoints.job.environment import Channel
from entrypoints.job.process_identity import Processes


@dataclass(frozen=True)
class Note:
    """That the FIFO of an epoch is its number minus `ahead`, and that FIFO `last` is the last one opened."""

    ahead: int
    last: int
    owners: Processes


def recall(channel: Channel) -> Note | None:
    """What was noted of a channel last, valid or not."""
    for path in _places(channel):
        try:
            said = json.loads(path.read_bytes())
            started = {int(process): str(start) for process, start in said["owners"].items()}
            return Note(int(said["ahead"]), int(said["last"]), Processes(started=started))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or another one's file
            continue
    return None


def note(channel: Channel, epoch: int, number: int, owners: Processes) -> None:
    """That this epoch is that FIFO, which has been opened for `owners` and those for which the channel was read before."""
    before = recall(channel)
    known = before.owners.started if before is not None and before.owners.any_running() else {}
    said = {"ahead": epoch - number, "last": number, "owners": {**known, **owners.started}}
    for path in _places(channel):
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            unfinished.write_text(json.dumps(said))
            unfinished.replace(path)
            return
        except OSError:
            # Without a note an epoch is the FIFO that is there: the same one, where epochs are asked for in their order.
            with suppress(OSError):
                unfinished.unlink()


def _places(channel: Channel) -> Iterator[Path]:
    """Where a note can be. A channel's name is no identity in the temporary folder: hosts of a local run share that."""
    yield channel.path.with_name(contract.epochs_name(channel.name))
    with suppress(OSError):
        folder = channel.path.parent.stat()
        what = f"{folder.st_dev} {folder.st_ino} {channel.path.absolute()} {os.getuid()}"
        name = f"launcher-epochs-{hashlib.sha256(what.encode()).hexdigest()[:24]}"
        path = Path(tempfile.gettempdir()) / name
        if not path.is_symlink() and (not path.exists() or path.stat().st_uid == os.getuid()):
            yield path
