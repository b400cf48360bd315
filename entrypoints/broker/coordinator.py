"""Where readers come with their requests and are given what is theirs.

A reader asks for one share of one epoch. It is seated when that epoch is being read or has been, refused when it is over,
and waits when it is still to come. Nothing here reads a FIFO: `look` is called by what does, whenever it has to wait and
between two reads.

An epoch is in one of three states:

- Unsettled: shares of this host are missing. Samples are kept. It is settled by the last reader that comes, or given up: when a
  rank of a missing share has ended, or when readers have waited for LAUNCHER_FIFO_WAIT_SECONDS.
- Settled: samples go to the shares that are not over yet.
- Abandoned: settled, and all shares are over. The FIFO is closed.

The job lasts while a process runs for which the channel was read (an owner), and beyond that while the present epoch is unsettled
and all readers that have come reported a finished share: such a rank may end before the others come, and a new broker would
wait for its share in vain. A request that does not fit that epoch is another job's, and gets another broker.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from entrypoints.broker import wire
from entrypoints.broker.epochs import Epoch, Outbox, Part
from entrypoints.errors import ChannelError
from entrypoints.job.process_identity import Processes, torchrun_ranks
from entrypoints.order.sharding import Share
from entrypoints.readers import fifo
from entrypoints.records import name_of

LOOK_SECONDS = 0.2  # between two looks whether the job is still there, and whether somebody waits in vain
NEVER_CAME_SECONDS = (
    3.0  # until missing ranks are looked for among torchrun's processes: all of those have been started then
)
FIRST_SECONDS = 10.0  # until the first request: whoever starts a broker has one


class JobOverError(Exception):
    """There is nobody left to read for."""


@dataclass
class _Connection:
    socket: socket.socket
    incoming: bytearray = field(default_factory=bytearray)  # of a request
    request: wire.Request | None = None
    greeting: Outbox = field(default_factory=Outbox)  # goes out before the part's samples
    part: Part | None = None
    refused: bool = False


class Coordinator:
    """What is in hand. `epoch` is being read; former ones have been, and are still being taken.

    `folder` is a descriptor of the folder of the FIFOs. While it is open, no other folder gets the same inode number, from which
    the broker's address is made.
    """

    def __init__(self, listener: socket.socket, folder: int) -> None:
        self._listener, self._folder = listener, folder
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self.owners = Processes()
        self._ranks: dict[int, Processes] = {}  # the process of each rank that has come, in this epoch or another
        self._first: wire.Request | None = None
        self._former: list[Epoch] = []
        self._looked = time.monotonic()
        self.epoch = Epoch(-1)

    def first_request(self) -> wire.Request:
        """What the first reader asks for, which says the channel and the epoch to begin with."""
        deadline = time.monotonic() + FIRST_SECONDS
        while self._first is None:
            if time.monotonic() > deadline:
                raise JobOverError
            self.look(LOOK_SECONDS)
        self.epoch = Epoch(self._first.epoch)
        self._seat()
        return self._first

    def next_epoch(self, last: bytes) -> None:
        """The present epoch becomes a former one, at the end of which is the frame `last`.

        Returns when its readers are known: one epoch is read ahead, and not all there will ever be.
        """
        self.epoch.finish(last)
        self._former = [each for each in [*self._former, self.epoch] if not each.is_abandoned]
        while not all(each.is_settled for each in self._former):
            self.look(LOOK_SECONDS)
        asked = [each.request.epoch for each in self._connections.values() if each.request and each.part is None]
        self.epoch = Epoch(max([self.epoch.number + 1, *asked]))
        self._seat()

    def look(self, seconds: float, pipe: int | None = None) -> bool:
        """Looks after the readers, once, or until something happens; whether `pipe` can be read.

        Raises JobOverError where all that we read for have ended.
        """
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        if pipe is not None:
            poll.register(pipe, select.POLLIN)
        for descriptor, connection in self._connections.items():
            out = connection.greeting.size or (connection.part and connection.part.outbox.size)
            poll.register(descriptor, select.POLLIN | select.POLLOUT if out else select.POLLIN)
        readable = False
        for descriptor, events in poll.poll(1000 * seconds):
            if descriptor == pipe:
                readable = True
            elif descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self._connections:  # and not closed by one served just now
                self._serve(self._connections[descriptor], events)
        now = time.monotonic()
        if self._first is not None and now - self._looked > LOOK_SECONDS / 2:
            self._looked = now
            self._give_up_waiting(now, self._first)
            # Those who are still connected do not count: workers whose process was killed notice it seconds later.
            if not self.owners.any_running():
                if not any(epoch.is_kept_for_others for epoch in self._epochs):
                    raise JobOverError
                _log_to(os.devnull)
            self.check_folder()
        return readable

    def check_folder(self) -> None:
        """Raise JobOverError if the folder of the FIFOs was deleted: a new one at its path belongs to another job."""
        assert self._first is not None
        with suppress(FileNotFoundError):
            if os.path.samestat(Path(self._first.path).parent.stat(), os.fstat(self._folder)):
                return
        raise JobOverError

    @property
    def _epochs(self) -> list[Epoch]:
        return [*self._former, self.epoch]

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        if not wire.is_ours(accepted):
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wire.SEND_BYTES)
        self._connections[accepted.fileno()] = _Connection(accepted)

    def _serve(self, connection: _Connection, events: int) -> None:
        try:
            if events & select.POLLOUT:
                outbox = connection.greeting
                if not outbox.size and connection.part is not None:
                    outbox = connection.part.outbox
                if outbox.size:
                    outbox.sent(connection.socket.sendmsg(outbox.first()))
            if events & ~select.POLLOUT:
                data = connection.socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError
                connection.incoming += data
        except BlockingIOError:
            return
        except OSError:  # it has gone, by its own will or not
            self._close(connection)
            return
        if connection.request is None and connection.incoming.endswith(b"\n"):
            self._take(connection, wire.Request.decode(connection.incoming))

    def _take(self, connection: _Connection, request: wire.Request) -> None:
        """A request: into its epoch, if that is there, or to wait for it."""
        if self._first is not None and not self.owners.any_running():
            if not self._is_kept_for(request, self._first):
                raise JobOverError  # it is another job's, which gets another broker
            _log_to(f"/proc/{request.owner}/fd/2")
        connection.request = request
        self.owners.add(request.owner)
        self._ranks[request.share.rank] = Processes([request.owner])
        if self._first is None:
            self._first = request
            return
        if (request.format, request.record_wrapper) != (self._first.format, self._first.record_wrapper):
            here, there = (name_of(wire.referred_format(each.format)) for each in (self._first, request))
            reason = f"channel {request.channel!r} is being read as {here!r}, not as {there!r}"
            self._refuse(connection, f"{reason}; every reader must ask for one format, in every epoch")
            return
        for epoch in self._epochs:
            if epoch.number < request.epoch:
                part = epoch.parts.get(request.index)
                epoch.leave(request.share)
                # A connection that nobody reads from any more would wait for ever.
                for old in [each for each in self._connections.values() if part is not None and each.part is part]:
                    self._close(old)
        self._seat()

    def _is_kept_for(self, request: wire.Request, first: wire.Request) -> bool:
        """Whether the request fits the epoch that outlives its finished readers."""
        return request.launch == first.launch and any(
            epoch.is_kept_for_others and epoch.number == request.epoch and epoch.takes(request.share)
            for epoch in self._epochs
        )

    def _seat(self) -> None:
        """Gives parts to those who ask for an epoch that is here, and refuses those whose epoch is gone."""
        for connection in self._connections.values():
            request = connection.request
            if request is None or connection.part is not None or connection.refused:
                continue
            if request.epoch > self.epoch.number:
                continue
            epoch = next((each for each in self._epochs if each.number == request.epoch), None)
            if epoch is None:
                now = f"this host's reader is at epoch {self.epoch.number}"
                self._refuse(connection, str(fifo.read_already(request.channel, request.epoch, now)))
                continue
            part = epoch.join(request.share, (request.block, request.block_bytes), finished=request.finished)
            if isinstance(part, str):
                self._refuse(connection, f"channel {request.channel!r}, epoch {request.epoch}: {part}")
                continue
            connection.part = part
            connection.greeting.add([wire.frame(wire.WELCOME)])

    def _refuse(self, connection: _Connection, reason: str) -> None:
        connection.refused = True
        connection.greeting.add([wire.error_frame(ChannelError(reason))])

    def _close(self, connection: _Connection) -> None:
        del self._connections[connection.socket.fileno()]
        connection.socket.close()
        if connection.part is not None:
            connection.part.end()
            self._former = [each for each in self._former if not each.is_abandoned]

    def _give_up_waiting(self, now: float, first: wire.Request) -> None:
        """Tell the readers that have come if others will not: at once if a rank has ended, else after the waiting time."""
        for epoch in self._epochs:
            if not epoch.parts or epoch.is_settled or epoch.shares is None:
                continue
            epoch.since = now if epoch.since is None else epoch.since
            ended = [rank for rank, owners in self._ranks.items() if epoch.lacks(rank) and not owners.any_running()]
            if ended:
                reason = (
                    f"rank {', '.join(map(str, sorted(ended)))} of this host has ended without reading its share of this epoch; "
                    "see its log for why; every rank must read the channel in every epoch"
                )
            elif now - epoch.since > NEVER_CAME_SECONDS and self._only_these_run(epoch.shares):
                ranks = ", ".join(map(str, sorted(self._ranks)))
                reason = (
                    f"of this host's {epoch.shares.readers // epoch.shares.workers} ranks only rank {ranks} still runs; the others "
                    "have ended without reading the channel; see their logs for why; every rank must read it in every epoch"
                )
            elif now - epoch.since > first.wait_seconds:
                come = ", ".join(map(str, sorted(epoch.parts)))
                reason = (
                    f"of this host's {epoch.shares.readers} readers only {len(epoch.parts)} came within {first.wait_seconds:g} s "
                    f"(share {come} of {epoch.shares.count}); all ranks and workers must read the channel, side by side"
                )
            else:
                continue
            where = f"channel {first.channel!r}, epoch {epoch.number}: "
            epoch.give_up(reason, wire.error_frame(ChannelError(where + reason)))

    def _only_these_run(self, share: Share) -> bool:
        """Whether ranks of this host have never connected, and torchrun runs no process beside those that have."""
        running = {process for rank in self._ranks.values() for process in rank.started if rank.any_running()}
        return len(self._ranks) < share.readers // share.workers and torchrun_ranks(min(running, default=0)) == running


def _log_to(path: str) -> None:
    """Make this file this process's stderr, if it can be opened.

    The broker has the stderr of the process that started it. Once that has ended, its caller may read its output to the end, and
    that comes only when no process has it open.
    """
    with suppress(OSError):
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)  # not blocking: a pipe may have lost its reader
        os.set_blocking(log, True)
        os.dup2(log, sys.stderr.fileno())
        os.close(log)
