"""Which readers of a host have asked for which epoch of a Pipe, and why one is refused or the missing ones are not waited for.

The requests are a table in the channel's record (fifo_numbers.py); a reader's latest request replaces the one before. They are of
one job: the table is cleared when no process is left that asked, since torchrun or a notebook may start another job beside the same
FIFOs. One exception: a rank that needed nothing of an epoch may end before the others ask.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import is_running, owner_process, start_time, torchrun_ranks
from sagemaker_channels.sources import fifo, fifo_numbers

CENSUS_SECONDS = (
    3.0  # until missing ranks are looked for: torchrun's processes all run by then, and one that replaces another
)
_LAUNCH_VARIABLES = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
_ONCE = "read the channel once per epoch in each rank and worker"


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
    ranks: int  # that torchrun has started on this host; 0 without torchrun
    launch: str  # differs after torchrun has restarted the ranks; empty without torchrun
    files: tuple[int, ...] = ()  # its descriptors of memory and FIFO, which other readers open, too
    left: bool = False  # It has stopped reading.

    def is_reading(self, epoch: int) -> bool:
        """Return whether the reader needs bytes of an epoch."""
        return self.epoch == epoch and not (self.finished or self.left) and is_running(*self.process)


Table: TypeAlias = dict[str, Request]  # by the reader's name


def request(name: str, epoch: int, readers: int, *, finished: bool) -> Request:
    """Return a request of this process."""
    process, owner, rank = os.getpid(), owner_process(), os.environ.get("RANK")
    return Request(
        name,
        epoch,
        readers,
        finished,
        [process, start_time(process)],
        [owner, start_time(owner)],
        f"process {owner}" if rank is None else f"rank {rank}",
        int(os.environ.get("LOCAL_WORLD_SIZE") or 0),
        " ".join(os.environ.get(variable, "") for variable in _LAUNCH_VARIABLES).strip(),
    )


def table_of(channel: Channel) -> Table:
    """Return the latest requests for a channel; none if its record is not one of ours."""
    try:
        return {each["name"]: Request(**each) for each in fifo_numbers.load(channel).get("readers", [])}
    except (KeyError, TypeError):
        return {}


def ask(channel: Channel, new: Request) -> None:
    """Add a request to the table. Raises ChannelError if it contradicts the others."""
    with fifo_numbers.locked(channel):
        table = table_of(channel)
        if not any(is_running(*each.owner) for each in table.values()) and not _is_kept(table, new):
            table = {}
        if reason := _why_refused(table, new):
            raise ChannelError(f"channel {channel.name!r}, epoch {new.epoch}: {reason}")
        if (before := table.get(new.name)) is not None and before.epoch >= new.epoch:
            reason = f"this host's reader {new.name} has asked for epoch {before.epoch}"
            raise fifo.read_already(channel.name, new.epoch, reason)
        store(channel, {**table, new.name: new})


def _why_refused(table: Table, new: Request) -> str:
    same = {name: each for name, each in table.items() if each.epoch == new.epoch}
    if other := next((each for each in same.values() if each.readers != new.readers), None):
        numbers = f"{new.readers} readers on this host, another {other.readers}"
        return f"one reader expects {numbers}; use the same num_workers on every rank"
    if new.name in same and same[new.name].is_reading(new.epoch):
        return f"reader {new.name} has asked for it already; {_ONCE}"
    is_one_more = new.name not in same and len(same) >= new.readers
    return f"all {new.readers} readers have asked for it already; {_ONCE}" if is_one_more else ""


def store(channel: Channel, table: Table) -> None:
    """Replace the table; the record must be locked."""
    record = fifo_numbers.load(channel)
    fifo_numbers.store(channel, {**record, "readers": [asdict(each) for each in table.values()]})


def leave(channel: Channel, own: Request, *, lost: bool) -> None:
    """Record that a reader has left its epoch, of which bytes are lost; else it can ask again."""
    with fifo_numbers.locked(channel):
        table = table_of(channel)
        if own.name in table and table[own.name].epoch == own.epoch:
            del table[own.name]
            own.left = True
            store(channel, {**table, own.name: own} if lost else table)


def _is_kept(table: Table, new: Request) -> bool:
    """Return whether all that have asked needed nothing, and a request can be of their job."""
    alike = [(each.epoch, each.readers, each.launch) for each in table.values() if each.finished]
    is_expected = new.name not in table and len(table) < new.readers
    return is_expected and len(alike) == len(table) and (new.epoch, new.readers, new.launch) in alike


def asked(table: Table, own: Request) -> int:
    """Return how many readers have asked for an epoch or a later one."""
    return sum(each.epoch >= own.epoch for each in table.values())


def are_behind(table: Table, own: Request) -> bool:
    """Return whether a reader still reads an earlier epoch, after which it may ask for this one."""
    return any(each.is_reading(each.epoch) for each in table.values() if each.epoch < own.epoch)


def why_given_up(table: Table, own: Request, most: int, waited: float) -> str:
    """Return why the missing readers of an epoch are not waited for any more; empty if they are. `most` have asked at a time."""
    names = sorted({each.rank for each in table.values() if each.epoch >= own.epoch})
    is_late = waited > CENSUS_SECONDS
    ended = {each.rank for each in table.values() if each.rank not in names and not is_running(*each.owner)}
    if ended and is_late:
        return (
            f"{', '.join(sorted(ended))} of this host has ended without reading this epoch; see its log for why; every rank must "
            "read the channel in every epoch"
        )
    running = {each.owner[0] for each in table.values() if is_running(*each.owner)}
    if is_late and len(running) < own.ranks and torchrun_ranks(min(running)) == running:
        return (
            f"of this host's {own.ranks} ranks only {', '.join(names)} still runs; the others have ended without reading the "
            "channel; see their logs for why; every rank must read it in every epoch"
        )
    if waited > fifo.wait_seconds():
        return (
            f"only {most} of this host's {own.readers} readers connected within {fifo.wait_seconds():g} s "
            f"({', '.join(names)}); all ranks and workers must read the channel at the same time"
        )
    return ""
