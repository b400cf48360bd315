"""The tee's connections: which reader asks for what, how far it is, and when the job is over. It reads no FIFO."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import Processes
from sagemaker_channels.readers import fifo
from sagemaker_channels.readers.tee import is_same_user, line
from sagemaker_channels.readers.tee_epoch import Epoch, Request

POLL_SECONDS = 0.2  # between two checks of whether the job still runs and which ranks are missing
STEP_BYTES = 1 << 20  # after so many more, a reader that has bytes left is notified of them


class JobOverError(Exception):
    """No process is left to read for."""


_NO_REQUEST = Request(-1, 0, "", False, 0, "", 0, "")


@dataclass(eq=False)
class _Reader:
    """A connection. Positions count the bytes of all epochs."""

    socket: socket.socket
    part: bytes = b""  # of a message
    request: Request = _NO_REQUEST
    epoch: Epoch | None = None  # that it reads
    read: int = 0  # position, as it reports
    known: int = 0  # position up to which it can read, as it knows
    last: bytes = b""  # message to it

    @property
    def name(self) -> str:
        return f"reader {self.request.reader} of {self.request.rank}"


class Coordinator:
    """The readers, and the epoch that is read for them.

    Args:
        listener: The socket that readers connect to.
        channel: The channel.
        memory: The descriptor of the ring, which each reader gets.
    """

    def __init__(self, listener: socket.socket, channel: Channel, memory: int) -> None:
        self._listener, self._channel, self._memory = listener, channel, memory
        self._folder = os.open(channel.path.parent, os.O_RDONLY)  # While it is open, no other folder gets its inode.
        self._readers: dict[int, _Reader] = {}  # by descriptor
        self._waiting: list[_Reader] = []  # for their epoch; finished ones may have closed their connection
        self._ranks: dict[str, Processes] = {}  # that have asked for this epoch or the one before
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._checked = time.monotonic()
        self.owners = Processes()
        self.written = self._known = 0  # positions
        self._early: list[_Reader] = []  # that have asked, until all readers of the first epoch have
        self._begun = False  # whether they have
        self.epoch = Epoch(-1)

    @property
    def is_abandoned(self) -> bool:
        """Whether all readers have left the epoch."""
        return self.epoch.is_settled and not any(reader.epoch is self.epoch for reader in self._readers.values())

    def slowest(self) -> tuple[int, str]:
        """Return the position from which bytes are still needed, and the name of the reader that needs them."""
        reading = [(reader.read, reader.name) for reader in self._readers.values() if reader.epoch]
        return min([*reading, (self.written if self.epoch.is_settled else self.epoch.begin, "")])

    def wrote(self, count: int) -> None:
        """Count bytes that were written to the ring; the readers are notified after some more, or when the FIFO is empty."""
        self.written += count
        if self.written - self._known >= STEP_BYTES:
            self.tell_all()
            self.poll(0)

    def next_epoch(self, error: str) -> None:
        """End the epoch, with an error or none, and begin the next one once this one's readers are known."""
        self.epoch.end, self.epoch.error = self.written, error
        self.tell_all()
        while not self.epoch.is_settled:
            self.poll(POLL_SECONDS)
        self._ranks = {each.rank: self._ranks[each.rank] for each in self.epoch.asked.values()}
        self.epoch = Epoch(self.epoch.number + 1, self.written)
        self._admit()

    def poll(self, seconds: float, pipe: int | None = None) -> bool:
        """Serve the readers until something happens or the time is over; return whether the descriptor `pipe` can be read.

        Raises JobOverError if every process that the tee reads for has ended, or the FIFOs' folder was deleted.
        """
        if pipe is not None:
            self._poll.register(pipe, select.POLLIN)
        ready = [descriptor for descriptor, _ in self._poll.poll(1000 * seconds)]
        if pipe is not None:
            self._poll.unregister(pipe)
        for descriptor in ready:
            if descriptor in self._readers:  # not closed by one that was served before it
                self._hear(self._readers[descriptor])
        if self._listener.fileno() in ready:
            self._accept()
        if self.epoch.number >= 0 and time.monotonic() - self._checked > POLL_SECONDS / 2:
            self._checked = time.monotonic()
            # Connections do not count: workers whose main process was killed notice it seconds later.
            if not self.owners.any_running():
                if not self.epoch.is_kept:
                    raise JobOverError
                _log_to(os.devnull)
            self.check_folder()
            if reason := self.epoch.why_given_up(self._ranks):
                self._give_up(self._where(self.epoch) + reason)
        return pipe in ready

    def check_folder(self) -> None:
        """Raise JobOverError if the FIFOs' folder was deleted: a new one at its path belongs to another job."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._channel.path.parent.stat(), os.fstat(self._folder)):
                return
        raise JobOverError

    def _where(self, epoch: Epoch) -> str:
        return f"channel {self._channel.name!r}, epoch {epoch.number}: "

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        if is_same_user(accepted):
            self._readers[accepted.fileno()] = _Reader(accepted)
            self._poll.register(accepted, select.POLLIN)
        else:
            accepted.close()

    def _hear(self, reader: _Reader) -> None:
        data = b""
        with suppress(ConnectionError):
            data = reader.socket.recv(1 << 16)
        if not data:
            self._close(reader)
            return
        *lines, reader.part = (reader.part + data).split(b"\n")
        for message in map(json.loads, lines):
            if reader.request is _NO_REQUEST:
                self._request(reader, Request(**message))
            else:
                reader.read = message
                self._tell(reader)

    def _request(self, reader: _Reader, request: Request) -> None:
        if self.epoch.number >= 0 and not self.owners.any_running():
            if not (self.epoch.is_kept and self.epoch.expects(request)):
                raise JobOverError  # The request belongs to another job, which gets another tee.
            _log_to(f"/proc/{request.owner}/fd/2")
        self.owners.add(request.owner)
        self._ranks[request.rank] = Processes([request.owner])
        for old in [*self._readers.values()]:  # a stream of this reader that was left open
            if old.request.reader == request.reader and old.epoch is not None and old.epoch.number < request.epoch:
                reason = f"this reader asked for epoch {request.epoch}, and gets no more of it"
                self._refuse(old, self._where(old.epoch) + reason)
                self._close(old)
        if self.epoch.number < 0 or (not self._begun and request.epoch < self.epoch.number):
            # Ranks may resume in different epochs: the first one is the lowest that any of them asks for.
            self.epoch = Epoch(request.epoch, since=self.epoch.since)
            self._waiting = [
                each for each in self._early if each.request.finished or each.epoch or each in self._waiting
            ]
            for each in self._waiting:
                each.epoch = None
        reader.request = request
        self._early.append(reader)
        with suppress(ConnectionError):
            socket.send_fds(reader.socket, [line(None)], [self._memory])
        self._waiting.append(reader)
        self._admit()

    def _admit(self) -> None:
        """Add the waiting readers to the epoch that they have asked for, if it is here; refuse what is over."""
        epoch = self.epoch
        for reader in self._waiting[:]:
            request = reader.request
            if request.epoch > epoch.number:
                epoch.add(request)  # as one that has left this one
                continue
            self._waiting.remove(reader)
            if request.finished:
                if request.epoch == epoch.number:
                    epoch.add(request)
            elif reason := self._why_refused(request):
                self._refuse(reader, reason)
            else:
                epoch.add(request)
                reader.epoch, reader.read, reader.known = epoch, epoch.begin, epoch.begin
        self._begun = self._begun or epoch.is_settled
        self.tell_all()

    def _why_refused(self, request: Request) -> str:
        if request.epoch < self.epoch.number:
            now = f"this host's reader is at epoch {self.epoch.number}"
            return str(fifo.read_already(self._channel.name, request.epoch, now))
        present = [each.request.reader for each in self._readers.values() if each.epoch is self.epoch]
        reason = self.epoch.why_refused(request, is_present=request.reader in present)
        return reason and self._where(self.epoch) + reason

    def tell_all(self) -> None:
        """Report to all readers how much can be read."""
        self._known = self.written
        for reader in self._readers.values():
            self._tell(reader)

    def _tell(self, reader: _Reader) -> None:
        """Report how much can be read: to a reader that has read all, after some more bytes, and at the end."""
        epoch = reader.epoch
        if epoch is None or not epoch.is_settled:
            return
        written = self.written if epoch.end is None else epoch.end
        if reader.read == reader.known or written - reader.known >= STEP_BYTES or epoch.end is not None:
            reader.known = written
            self._send(reader, [epoch.begin, written, epoch.end is not None, epoch.error])

    def _refuse(self, reader: _Reader, reason: str) -> None:
        self._send(reader, [reader.epoch.begin if reader.epoch else 0, reader.known, False, reason])
        reader.epoch = None

    def _send(self, reader: _Reader, report: list[object]) -> None:
        message = line(report)
        if message != reader.last:
            reader.last = message
            with suppress(OSError):  # `_hear` notices that it has left.
                reader.socket.sendall(message)

    def _give_up(self, reason: str) -> None:
        """Refuse the readers that wait for missing ones. Nothing of the epoch is lost, so they can ask again."""
        for reader in [each for each in self._readers.values() if each.epoch is self.epoch or each in self._waiting]:
            self._refuse(reader, reason)
        self._waiting.clear()
        self.epoch.asked.clear()
        self.epoch.readers, self.epoch.since = 0, 0.0

    def _close(self, reader: _Reader) -> None:
        del self._readers[reader.socket.fileno()]
        self._poll.unregister(reader.socket)
        reader.socket.close()
        if reader in self._waiting and not reader.request.finished:
            self._waiting.remove(reader)


def _log_to(path: str) -> None:
    """Make this file the stderr of this process, if it can be opened.

    The tee inherits stderr from its starter. After that has ended, a program that reads the starter's output to the end would wait
    until no process has the pipe open.
    """
    with suppress(OSError):
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)  # Opening a pipe without a reader would block.
        os.set_blocking(log, True)
        os.dup2(log, sys.stderr.fileno())
        os.close(log)
