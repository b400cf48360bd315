"""The broker's connections: accepts readers' requests and assigns each one its shard of an epoch.

A reader asks for one shard of one epoch. It gets the shard if that epoch is being read or was read and is not finished, an error
if the epoch is over, and waits if the epoch is still to come. Nothing here reads a FIFO: the code that does calls `poll` whenever
it has to wait and between two reads.

An epoch is in one of three states:

- Unsettled: readers of this host are missing. Samples are kept. The last reader to connect settles it, or it is given up: when a
  rank with a missing shard has ended, or after LAUNCHER_FIFO_WAIT_SECONDS.
- Settled: samples are sent to the shards that are not closed.
- Abandoned: settled, and all shards are closed. The FIFO is closed.

The broker serves as long as a process runs for which the channel was read (an owner). After that it serves while the present
epoch is unsettled and every reader that has connected was finished: such a rank may end before the others connect, and a new
broker would wait forever for its shard. A request that does not fit that epoch belongs to another job, which gets another broker.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sagemaker_channels.broker import protocol
from sagemaker_channels.broker.epochs import Assignment, Epoch, Outbox
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.process_identity import Processes, torchrun_ranks
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.readers import fifo

POLL_SECONDS = 0.2  # between two checks of whether the job still runs and which ranks are missing
CENSUS_SECONDS = 3.0  # until missing ranks are looked for among torchrun's processes, which all run by then
FIRST_SECONDS = 10.0  # until the first request; the reader that starts a broker sends one immediately


class JobOverError(Exception):
    """No process is left to read for."""


@dataclass
class _Connection:
    socket: socket.socket
    incoming: bytearray = field(default_factory=bytearray)  # of a request
    request: protocol.Request | None = None
    reply: Outbox = field(default_factory=Outbox)  # to the request; sent before samples
    shard: Assignment | None = None
    refused: bool = False

    @property
    def pending(self) -> protocol.Request | None:
        """The request, as long as it has neither a shard nor a refusal."""
        return None if self.shard or self.refused else self.request


class Coordinator:
    """The readers, and the epochs that they read: `epoch` from its FIFO, former ones from memory.

    Args:
        listener: The non-blocking socket that readers connect to.
        folder: A descriptor of the FIFOs' folder. While it is open, no other folder gets its inode, which is part of the
            broker's address.
    """

    def __init__(self, listener: socket.socket, folder: int) -> None:
        self._listener, self._folder = listener, folder
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self.owners = Processes()
        self._ranks: dict[int, Processes] = {}  # the process of each rank that has connected, in any epoch
        self._first: protocol.Request | None = None
        self._former: list[Epoch] = []
        self._checked = time.monotonic()
        self.epoch = Epoch(-1)

    def first_request(self) -> protocol.Request:
        """Return the first request, with the channel and the first epoch. Raises JobOverError after FIRST_SECONDS without one."""
        deadline = time.monotonic() + FIRST_SECONDS
        while self._first is None:
            if time.monotonic() > deadline:
                raise JobOverError
            self.poll(POLL_SECONDS)
        self.epoch = Epoch(self._first.epoch)
        self._assign_shards()
        return self._first

    def next_epoch(self, last: bytes) -> None:
        """Finish the present epoch with the frame `last`, and begin the next one once this one's readers are known.

        So one epoch is read ahead, and no more. Raises JobOverError as `poll` does.
        """
        self.epoch.finish(last)
        self._former = [each for each in [*self._former, self.epoch] if not each.is_abandoned]
        while not all(each.is_settled for each in self._former):
            self.poll(POLL_SECONDS)
        requested = [each.pending.epoch for each in self._connections.values() if each.pending]
        self.epoch = Epoch(max([self.epoch.number + 1, *requested]))
        self._assign_shards()

    def poll(self, seconds: float, pipe: int | None = None) -> bool:
        """Serve the readers until something happens or the time is over; return whether the descriptor `pipe` can be read.

        Raises JobOverError if every process that the broker reads for has ended, or the FIFOs' folder was deleted.
        """
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        if pipe is not None:
            poll.register(pipe, select.POLLIN)
        for descriptor, connection in self._connections.items():
            out = connection.reply.size or (connection.shard and connection.shard.outbox.size)
            poll.register(descriptor, select.POLLIN | select.POLLOUT if out else select.POLLIN)
        readable = False
        for descriptor, events in poll.poll(1000 * seconds):
            if descriptor == pipe:
                readable = True
            elif descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self._connections:  # not closed by a connection that was served before it
                self._serve(self._connections[descriptor], events)
        now = time.monotonic()
        if self._first is not None and now - self._checked > POLL_SECONDS / 2:
            self._checked = now
            self._give_up_missing(now, self._first)
            # Connections do not count: workers whose main process was killed notice it seconds later.
            if not self.owners.any_running():
                if not any(epoch.is_kept_for_missing for epoch in self._epochs):
                    raise JobOverError
                _log_to(os.devnull)
            self.check_folder()
        return readable

    def check_folder(self) -> None:
        """Raise JobOverError if the FIFOs' folder was deleted: a new one at its path belongs to another job."""
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
        if not protocol.is_same_user(accepted):
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, protocol.SEND_BYTES)
        self._connections[accepted.fileno()] = _Connection(accepted)

    def _serve(self, connection: _Connection, events: int) -> None:
        try:
            if events & select.POLLOUT:
                outbox = connection.reply
                if not outbox.size and connection.shard is not None:
                    outbox = connection.shard.outbox
                if outbox.size:
                    outbox.sent(connection.socket.sendmsg(outbox.first()))
            if events & ~select.POLLOUT:
                data = connection.socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError
                connection.incoming += data
        except BlockingIOError:
            return
        except OSError:  # The reader closed the connection, or has died.
            self._close(connection)
            return
        if connection.request is None and connection.incoming.endswith(b"\n"):
            self._handle(connection, protocol.Request.decode(connection.incoming))

    def _handle(self, connection: _Connection, request: protocol.Request) -> None:
        """Record a request, and assign its shard if its epoch is here."""
        if self._first is not None and not self.owners.any_running():
            fits = request.launch == self._first.launch and any(
                epoch.is_kept_for_missing and epoch.number == request.epoch and epoch.expects(request.shard)
                for epoch in self._epochs
            )
            if not fits:
                raise JobOverError  # The request belongs to another job, which gets another broker.
            _log_to(f"/proc/{request.owner}/fd/2")
        connection.request = request
        self.owners.add(request.owner)
        self._ranks[request.shard.rank] = Processes([request.owner])
        if self._first is None:
            self._first = request
            return
        if (request.format, request.record_wrapper) != (self._first.format, self._first.record_wrapper):
            reason = f"channel {request.channel!r} is being read as {self._first.format!r}, not as {request.format!r}"
            self._refuse(connection, f"{reason}; every reader must ask for one format, in every epoch")
            return
        for epoch in self._epochs:
            if epoch.number < request.epoch:
                shard = epoch.shards.get(request.shard.index)
                epoch.leave(request.shard)
                # A connection whose reader has moved on would otherwise stay open for ever.
                for old in [each for each in self._connections.values() if shard is not None and each.shard is shard]:
                    self._close(old)
        self._assign_shards()

    def _assign_shards(self) -> None:
        """Assign shards of the epochs that are here to the readers that asked for them; refuse epochs that are over."""
        for connection in self._connections.values():
            request = connection.pending
            if request is None or request.epoch > self.epoch.number:
                continue
            epoch = next((each for each in self._epochs if each.number == request.epoch), None)
            if epoch is None:
                now = f"this host's reader is at epoch {self.epoch.number}"
                self._refuse(connection, str(fifo.read_already(request.channel, request.epoch, now)))
                continue
            shard = epoch.join(request)
            if isinstance(shard, str):
                self._refuse(connection, f"channel {request.channel!r}, epoch {request.epoch}: {shard}")
                continue
            connection.shard = shard
            connection.reply.add([protocol.frame(protocol.WELCOME)])

    def _refuse(self, connection: _Connection, reason: str) -> None:
        connection.refused = True
        connection.reply.add([protocol.error_frame(ChannelError(reason))])

    def _close(self, connection: _Connection) -> None:
        del self._connections[connection.socket.fileno()]
        connection.socket.close()
        if connection.shard is not None:
            connection.shard.close()
            self._former = [each for each in self._former if not each.is_abandoned]

    def _give_up_missing(self, now: float, first: protocol.Request) -> None:
        """Send the waiting readers an error if missing ones have ended, or have not connected in time."""
        for epoch in self._epochs:
            if epoch.shards and not epoch.is_settled and epoch.layout is not None:
                epoch.since = now if epoch.since is None else epoch.since
                reason = self._why_given_up(epoch, epoch.layout, now - epoch.since, first.wait_seconds)
                if reason:
                    where = f"channel {first.channel!r}, epoch {epoch.number}: "
                    epoch.give_up(reason, protocol.error_frame(ChannelError(where + reason)))

    def _why_given_up(self, epoch: Epoch, layout: Shard, waited: float, wait_seconds: float) -> str:
        """Return why an epoch's missing readers are not waited for any more; empty if they are."""
        ended = [rank for rank, process in self._ranks.items() if epoch.lacks(rank) and not process.any_running()]
        if ended:
            return (
                f"rank {_listed(ended)} of this host has ended without reading its shard of this epoch; see its log for why; "
                "every rank must read the channel in every epoch"
            )
        if waited > CENSUS_SECONDS and self._only_connected_ranks_run(layout):
            return (
                f"of this host's {layout.readers // layout.workers} ranks only rank {_listed(self._ranks)} still runs; the others "
                "have ended without reading the channel; see their logs for why; every rank must read it in every epoch"
            )
        if waited > wait_seconds:
            return (
                f"only {len(epoch.shards)} of this host's {layout.readers} readers connected within {wait_seconds:g} s "
                f"(shard {_listed(epoch.shards)} of {layout.count}); all ranks and workers must read the channel at the same time"
            )
        return ""

    def _only_connected_ranks_run(self, layout: Shard) -> bool:
        """Return whether some ranks of this host have never connected, and torchrun runs only the processes of those that have."""
        if len(self._ranks) >= layout.readers // layout.workers:
            return False
        running = {process for rank in self._ranks.values() if rank.any_running() for process in rank.started}
        return bool(running) and torchrun_ranks(min(running)) == running


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _log_to(path: str) -> None:
    """Make this file the stderr of this process, if it can be opened.

    The broker inherits stderr from its starter. After that has ended, a program that reads the starter's output to the end would
    wait until no process has the pipe open.
    """
    with suppress(OSError):
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)  # Opening a pipe without a reader would block.
        os.set_blocking(log, True)
        os.dup2(log, sys.stderr.fileno())
        os.close(log)
