"""An epoch of a tee: which readers have asked for it, and why one is refused or the missing ones are not waited for. No sockets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from sagemaker_channels.job.process_identity import Processes, torchrun_ranks
from sagemaker_channels.readers.fifo import wait_seconds

CENSUS_SECONDS = 3.0  # until missing ranks are looked for among torchrun's processes, which all run by then
_ONCE = "read the channel once per epoch in each rank and worker"


@dataclass(frozen=True)
class Request:
    """A reader's request for an epoch."""

    epoch: int
    readers: int  # of this host, including this one
    reader: str  # which of them
    finished: bool  # It needs nothing of the epoch.
    owner: int  # the process that reads, or whose worker reads
    rank: str  # the owner's name in messages
    ranks: int  # that torchrun has started on this host; 0 without torchrun
    launch: str  # differs after torchrun has restarted the ranks; empty without torchrun


@dataclass(eq=False)
class Epoch:
    """Where an epoch is in the stream of all epochs, and who reads it."""

    number: int
    begin: int = 0
    end: int | None = None  # known when all was read
    error: str = ""  # after the bytes up to `end`
    readers: int = 0  # as the first one says
    asked: dict[str, Request] = field(default_factory=dict)  # by reader
    since: float = 0.0  # when the first one asked

    @property
    def is_settled(self) -> bool:
        """Whether all readers have asked for this epoch or a later one."""
        return 0 < self.readers <= len(self.asked)

    @property
    def is_kept(self) -> bool:
        """Whether every reader that has asked needed nothing, and others are missing: a new tee would not know of the former."""
        return bool(self.asked) and not self.is_settled and all(each.finished for each in self.asked.values())

    def add(self, request: Request) -> None:
        """Count a reader, also if it asks for a later epoch."""
        if not self.is_settled:
            self.readers = self.readers or request.readers
            self.since = self.since or time.monotonic()
            self.asked[request.reader] = request

    def expects(self, request: Request) -> bool:
        """Return whether a request can be of the job of those that have asked before."""
        alike = [(each.epoch, each.readers, each.launch) for each in self.asked.values()]
        return request.reader not in self.asked and (request.epoch, request.readers, request.launch) in alike

    def why_refused(self, request: Request, *, is_present: bool) -> str:
        """Return why a reader cannot read this epoch; empty if it can."""
        if self.readers not in (0, request.readers):
            numbers = f"{request.readers} readers on this host, another {self.readers}"
            return f"one reader expects {numbers}; use the same num_workers on every rank"
        if is_present:
            return f"reader {request.reader} has asked for it already; {_ONCE}"
        return f"all {self.readers} readers have asked for it already; {_ONCE}" if self.is_settled else ""

    def why_given_up(self, ranks: Mapping[str, Processes]) -> str:
        """Return why missing readers are not waited for any more; empty if they are.

        Args:
            ranks: The processes of the ranks that have asked for this epoch or the one before, by their names.
        """
        if self.is_settled or not self.asked:
            return ""
        waited, asked = time.monotonic() - self.since, sorted({each.rank for each in self.asked.values()})
        ended = sorted(rank for rank, process in ranks.items() if rank not in asked and not process.any_running())
        if ended:
            return (
                f"{', '.join(ended)} of this host has ended without reading this epoch; see its log for why; every rank must "
                "read the channel in every epoch"
            )
        count = max(each.ranks for each in self.asked.values())
        running = {pid for process in ranks.values() if process.any_running() for pid in process.started}
        if waited > CENSUS_SECONDS and len(ranks) < count and running and torchrun_ranks(min(running)) == running:
            return (
                f"of this host's {count} ranks only {', '.join(asked)} still runs; the others have ended without reading the "
                "channel; see their logs for why; every rank must read it in every epoch"
            )
        if waited > wait_seconds():
            return (
                f"only {len(self.asked)} of this host's {self.readers} readers connected within {wait_seconds():g} s "
                f"({', '.join(asked)}); all ranks and workers must read the channel at the same time"
            )
        return ""
