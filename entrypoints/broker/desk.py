"""Where readers come with their requests and are given what is theirs.

A reader asks for one share of one epoch. It is seated when that epoch is being read or has been, refused when it is over,
and waits when it is still to come. Nothing here reads a FIFO: `look` is called by what does, whenever it has to wait and
between two reads.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass, field

from entrypoints.broker import wire
from entrypoints.broker.epochs import Epoch, Outbox, Part
from entrypoints.errors import ChannelError
from entrypoints.owners import Owners
from entrypoints.readers import fifo
from entrypoints.records import name_of

LOOK_SECONDS = 0.2  # between two looks whether the job is still there, and whether somebody waits in vain
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


class Desk:
    """What is in hand. `epoch` is being read; former ones have been, and are still being taken."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self.owners = Owners()
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

    @property
    def is_idle(self) -> bool:
        """Whether nobody is here and nothing is left for anybody."""
        return not self._connections and not self._former

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
        if now - self._looked > LOOK_SECONDS / 2:
            self._looked = now
            # Those who are still connected do not count: workers whose process was killed notice it seconds later.
            if self._first is not None and not self.owners.any_left():
                raise JobOverError
            self._give_up_waiting(now)
        return readable

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
        if self._first is not None and not self.owners.any_left():  # it is another job's, which gets another broker
            raise JobOverError
        connection.request = request
        self.owners.add(request.owner)
        if self._first is None:
            self._first = request
            return
        if (request.format, request.record_wrapper) != (self._first.format, self._first.record_wrapper):
            here, there = (name_of(wire.referred_format(each.format)) for each in (self._first, request))
            reason = f"channel {request.channel!r} is being read as {here!r}, not as {there!r}"
            self._refuse(connection, f"{reason}; every reader must ask for one format, in every epoch")
            return
        for epoch in [*self._former, self.epoch]:
            if epoch.number < request.epoch:
                part = epoch.parts.get(request.index)
                epoch.leave(request.index, request.count, request.readers)
                # A connection that nobody reads from any more would wait for ever.
                for old in [each for each in self._connections.values() if part is not None and each.part is part]:
                    self._close(old)
        self._seat()

    def _seat(self) -> None:
        """Gives parts to those who ask for an epoch that is here, and refuses those whose epoch is gone."""
        for connection in self._connections.values():
            request = connection.request
            if request is None or connection.part is not None or connection.refused:
                continue
            if request.epoch > self.epoch.number:
                continue
            epoch = next((each for each in [*self._former, self.epoch] if each.number == request.epoch), None)
            if epoch is None:
                now = f"this host's reader is at epoch {self.epoch.number}"
                self._refuse(connection, str(fifo.read_already(request.channel, request.epoch, now)))
                continue
            part = epoch.join(request.index, request.count, request.readers, (request.block, request.block_bytes))
            if isinstance(part, str):
                self._refuse(connection, f"channel {request.channel!r}, epoch {request.epoch}: {part}")
                continue
            if len(epoch.parts) == 1:
                epoch.since = time.monotonic()
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

    def _give_up_waiting(self, now: float) -> None:
        """Tells those who have come that others have not, when that has lasted for too long."""
        for epoch in [*self._former, self.epoch]:
            if self._first is None or not epoch.parts or epoch.is_settled:
                continue
            if now - epoch.since > self._first.wait_seconds:
                come = ", ".join(map(str, sorted(epoch.parts)))
                reason = (
                    f"channel {self._first.channel!r}, epoch {epoch.number}: of this host's {epoch.readers} readers only "
                    f"{len(epoch.parts)} came within {self._first.wait_seconds:g} s (share {come} of {epoch.count}); all ranks "
                    "and workers must read the channel, side by side"
                )
                epoch.give_up(wire.error_frame(ChannelError(reason)))
