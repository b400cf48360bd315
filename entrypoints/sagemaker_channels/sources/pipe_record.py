"""A host's record of a Pipe channel: which FIFO belongs to which epoch, and which readers have asked for which epoch.

SageMaker counts a channel's FIFOs from 0 in every container, while a resumed job begins with a later epoch. So the first epoch
that a job asks for, whatever its number, is the FIFO that exists (`_0` in a new container; the one with the epoch's number if
there are several), and from then on both count up together. The DataLoader workers of each epoch are new processes, so the mapping
is recorded in a file beside the FIFOs, or in the temporary folder if that folder is read-only. It is valid while a process runs
that it was made for. Then a new job begins: in a new container, or in this one if torchrun restarts a failed training, which finds
the FIFOs where the last one left them.

The record also has a table of the readers' requests, in which a reader's latest one replaces the one before, and the ring of
several readers that share a Pipe (tee.py). The table is cleared when no process is left that asked, since torchrun or a notebook
may start another job beside the same FIFOs. One exception: a rank that needed nothing of an epoch may end before the others ask.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError, no_room
from sagemaker_channels.formats.writing import replacing
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import ended_ranks, is_running, owner_process, rank_variable, start_time

WAIT_SECONDS = 600.0  # for the FIFO and for any bytes; the feeder may have a million objects to list first
CENSUS_SECONDS = 3.0  # until missing ranks are looked for: a process that replaces another runs by then
_LAUNCH_VARIABLES = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
_ONCE = "read the channel once per epoch in each rank and worker"


def wait_seconds() -> float:
    """Return how long to wait for a FIFO, its feeder or other readers."""
    return float(os.environ.get(contract.FIFO_WAIT_VARIABLE) or WAIT_SECONDS)


def load(channel: Channel) -> dict[str, Any]:
    """Return the channel's record; empty if there is none."""
    for path in _paths(channel):
        with suppress(OSError, ValueError):
            return dict(json.loads(path.read_bytes()))
    return {}


def store(channel: Channel, **members: Any) -> None:
    """Replace members of the channel's record."""
    record = {**load(channel), **members}
    for path in _paths(channel):
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(OSError), replacing(path, unfinished):
            unfinished.write_text(json.dumps(record))
            return
        with suppress(OSError):  # On a full disk, `load` would return what it was before.
            path.unlink()


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


_mutex = threading.RLock()  # of this process's threads
_has_lock = False  # whether the thread that has the mutex locks a folder, too
_left: list[Callable[[], None]] = []  # by streams that Python finalized in that thread


@contextmanager
def locked(channel: Channel) -> Iterator[None]:
    """Exclude the other readers of this host from the channel's record. The folder is locked, so that no lock file is needed."""
    global _has_lock
    folder = os.open(channel.path.parent, os.O_RDONLY)
    try:
        with _mutex:
            _has_lock = True  # before it has it, and until after: Python may finalize a stream between any two steps
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                yield
            finally:
                fcntl.flock(folder, fcntl.LOCK_UN)  # A process forked meanwhile holds the descriptor, too.
                _has_lock = False
            while _left:
                _left.pop()()
    finally:
        os.close(folder)


def _renew_mutex() -> None:
    global _mutex, _has_lock
    _mutex, _has_lock = threading.RLock(), False  # Another thread may have had it when this process was forked.


os.register_at_fork(after_in_child=_renew_mutex)


class LastOpened(NamedTuple):
    ahead: int  # the job's epoch minus the FIFO's number
    last: int
    is_valid: bool  # whether a process runs that it was made for


def last_opened(channel: Channel) -> LastOpened | None:
    record = load(channel)
    if "last" not in record:
        return None
    running = any(is_running(int(process), start) for process, start in record["owners"].items())
    return LastOpened(record["ahead"], record["last"], running)


def record_opened(channel: Channel, epoch: int, number: int) -> None:
    """Record that an epoch's FIFO of this number was opened for those that asked; those of a valid record are added."""
    before = last_opened(channel)
    known = load(channel)["owners"] if before is not None and before.is_valid else {}
    owners = {str(process): start for process, start in (each.owner for each in table_of(channel).values())}
    store(channel, ahead=epoch - number, last=number, owners={**known, **owners})


@dataclass
class Request:
    """A reader's request for an epoch. A process is its number and its start time."""

    name: str  # of the reader
    epoch: int
    readers: int  # of this host, including this one
    finished: bool  # It needs nothing of the epoch.
    process: list[Any]  # that reads
    owner: list[Any]  # the process itself, or the one whose worker it is
    rank: str  # the owner's name in messages
    launch: str  # differs after torchrun has restarted the ranks; empty without torchrun
    files: tuple[int, ...] = ()  # its descriptors of memory and FIFO, which other readers open, too
    left: bool = False  # It has stopped reading, or no other reader waits for it.

    def is_reading(self, epoch: int) -> bool:
        """Return whether the reader needs bytes of an epoch."""
        return self.epoch == epoch and not (self.finished or self.left) and is_running(*self.process)


Table: TypeAlias = dict[str, Request]  # by the reader's name


def request(name: str, epoch: int, readers: int, *, finished: bool) -> Request:
    process, owner, rank = os.getpid(), owner_process(), rank_variable("RANK")
    return Request(
        name,
        epoch,
        readers,
        finished,
        [process, start_time(process)],
        [owner, start_time(owner)],
        f"process {owner}" if rank is None else f"rank {rank}",
        " ".join(os.environ.get(variable, "") for variable in _LAUNCH_VARIABLES).strip(),
        left=readers == 1,  # No other reader waits for an only one.
    )


def table_of(channel: Channel) -> Table:
    """Return the latest requests for a channel."""
    with suppress(TypeError):  # written by another release, for a job that has ended
        return {each["name"]: Request(**each) for each in load(channel).get("readers", [])}
    return {}


def store_table(channel: Channel, table: Table) -> None:
    """Replace the table; the record must be locked."""
    store(channel, readers=[asdict(each) for each in table.values()])


def ask(channel: Channel, new: Request) -> None:
    """Add a request to the table. Raises ChannelError if it contradicts the others."""
    with locked(channel):
        table = table_of(channel)
        if not any(is_running(*each.owner) for each in table.values()) and not _is_kept(table, new):
            table = {}
        if reason := _why_refused(table, new):
            raise ChannelError(f"channel {channel.name!r}, epoch {new.epoch}: {reason}")
        if (before := table.get(new.name)) is not None and before.epoch >= new.epoch:
            reason = f"this host's reader {new.name} has asked for epoch {before.epoch}"
            raise read_already(channel.name, new.epoch, reason)
        store_table(channel, {**table, new.name: new})
        if new.name not in table_of(channel):  # No reader would know of this one, not even itself.
            folders = f"{channel.path.parent} and {tempfile.gettempdir()}"
            raise no_room(f"the record of channel {channel.name!r}", folders, "its readers find each other by it")


def _why_refused(table: Table, new: Request) -> str:
    same = {name: each for name, each in table.items() if each.epoch == new.epoch}
    if other := next((each for each in same.values() if each.readers != new.readers), None):
        numbers = f"{new.readers} readers on this host, another {other.readers}"
        return f"one reader expects {numbers}; use the same num_workers on every rank"
    if new.name in same and same[new.name].is_reading(new.epoch):
        return f"reader {new.name} has asked for it already; {_ONCE}"
    is_one_more = new.name not in same and len(same) >= new.readers
    return f"all {new.readers} readers have asked for it already; {_ONCE}" if is_one_more else ""


def _is_kept(table: Table, new: Request) -> bool:
    """Return whether all that have asked needed nothing, and a request can be of their job."""
    alike = [(each.epoch, each.readers, each.launch) for each in table.values() if each.finished]
    is_expected = new.name not in table and len(table) < new.readers
    return is_expected and len(alike) == len(table) and (new.epoch, new.readers, new.launch) in alike


def leave(channel: Channel, own: Request, *, lost: bool) -> None:
    """Record that a reader has left its epoch, of which bytes are lost; else it can ask again."""
    with _mutex:
        if _has_lock:  # A second lock of the folder would wait for the first one.
            _left.append(partial(leave, channel, own, lost=lost))
            return
    with locked(channel):
        table = table_of(channel)
        if own.name in table and table[own.name].epoch == own.epoch:
            del table[own.name]
            own.left = True
            store_table(channel, {**table, own.name: own} if lost else table)


def asked(table: Table, own: Request) -> int:
    """Return how many readers have asked for an epoch or a later one."""
    return sum(each.epoch >= own.epoch for each in table.values())


def are_behind(table: Table, own: Request) -> bool:
    """Return whether a reader still reads an earlier epoch, after which it may ask for this one."""
    return any(each.is_reading(each.epoch) for each in table.values() if each.epoch < own.epoch)


def lacking(table: Table, own: Request, most: int, seconds: float) -> str:
    """Return, in words, how many readers have asked for an epoch, `most` at a time, and which."""
    names = sorted({each.rank for each in table.values() if each.epoch >= own.epoch})
    readers = f"{most} of this host's {own.readers} readers"
    return f"only {readers} connected within {seconds:g} s ({', '.join(names)})"


def why_given_up(table: Table, own: Request, most: int, waited: float) -> str:
    """Return why the missing readers of an epoch are not waited for any more; empty if they are. `most` have asked at a time."""
    names = {each.rank for each in table.values() if each.epoch >= own.epoch}
    ended = {each.rank for each in table.values() if not is_running(*each.owner)}
    if waited > CENSUS_SECONDS and (ended := (ended | {f"rank {rank}" for rank in ended_ranks()}) - names):
        return (
            f"{', '.join(sorted(ended))} of this host has ended without reading this epoch; see its log for why; every rank must "
            "read the channel in every epoch"
        )
    if waited > wait_seconds():
        return (
            f"{lacking(table, own, most, wait_seconds())}; all ranks and workers must read the channel at the same time"
        )
    return ""


def read_already(channel: str, epoch: int, reason: str) -> ChannelError:
    return ChannelError(
        f"epoch {epoch} was read already ({reason})",
        channel=channel,
        remedy="a Pipe sends each epoch once, so count epochs up (set_epoch, or open_channel's epoch)",
    )
