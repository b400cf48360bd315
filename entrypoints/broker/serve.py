"""The broker's process: one thread around poll().

The channel's format pulls: whenever it needs bytes, `_Stream.readinto` deals out the samples made so far, looks after
the readers, and returns when the FIFO has bytes and the readers have room. So samples never wait for bytes that are
still to come, and the format knows nothing of all this.

Kept in memory: what one read of the FIFO holds, and up to ROOM bytes for the readers in all (a sample larger than that
passes, one at a time).
"""

from __future__ import annotations

import os
import signal
import socket
import time
import traceback
from io import FileIO
from pathlib import Path

from entrypoints.broker import wire
from entrypoints.broker.coordinator import LOOK_SECONDS, Coordinator, JobOverError
from entrypoints.broker.framing import dealt_samples
from entrypoints.fetching.silence import TELL_SECONDS, Silence, tell
from entrypoints.readers import fifo
from entrypoints.sample import Sample

ROOM = 64 << 20  # bytes for all readers together, before the FIFO is left to fill up
FIFO_LOOK_SECONDS = 0.02  # between two looks for the FIFO that is to come


class _AbandonedError(Exception):
    """All readers have left the epoch."""


def serve(listener: socket.socket, folder: int) -> None:
    """Read one epoch after the other for the readers that connect, until the job is over; for `folder` see Coordinator."""
    coordinator = Coordinator(listener, folder)
    try:
        request = coordinator.first_request()
        while True:
            coordinator.next_epoch(_read_epoch(coordinator, request))
    except JobOverError:
        return


def _read_epoch(coordinator: Coordinator, request: wire.Request) -> bytes:
    """Reads and deals out the coordinator's epoch; the frame that is its end."""
    try:
        descriptor, who = _open(coordinator, request)
        stream = _Stream(coordinator, descriptor, Silence(who, request.wait_seconds))
        try:
            form = wire.referred_format(request.format)
            for sample in dealt_samples(stream, form, request.record_wrapper == "RecordIO"):
                stream.made.append(sample)
        finally:
            stream.deal()  # also before an error: what came before it is good
            stream.close()
    except _AbandonedError:
        return wire.frame(wire.END)
    except JobOverError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the readers have to know
        if type(error).__name__ not in wire.ERRORS:
            traceback.print_exc()
        return wire.error_frame(error)
    return wire.frame(wire.END)


def _open(coordinator: Coordinator, request: wire.Request) -> tuple[int, str]:
    """The FIFO, once it is there and has its writer, and who that is. The time counts from when a reader waits for it."""
    since = time.monotonic()
    awaited = fifo.Awaited(request.as_channel(), coordinator.epoch.number, coordinator.owners)
    patience = awaited.patience(request.wait_seconds)
    try:
        while True:
            coordinator.check_folder()
            if (descriptor := awaited.look()) is not None:
                break
            seconds = FIFO_LOOK_SECONDS if coordinator.epoch.is_awaited else LOOK_SECONDS
            coordinator.look(seconds, None if awaited.descriptor < 0 else awaited.descriptor)
            _stop_if_abandoned(coordinator)
            now = time.monotonic()
            if not coordinator.epoch.is_awaited:
                since = now
            if now - since > patience:
                raise awaited.in_vain(patience)
    finally:
        awaited.close()
    return descriptor, f"channel {request.channel!r}: the feeder of {awaited.path}"


def _stop_if_abandoned(coordinator: Coordinator) -> None:
    if coordinator.epoch.is_abandoned:
        raise _AbandonedError


class _Stream:
    """The bytes of an epoch as the format sees them; and the samples `made` of them, until they are dealt out."""

    def __init__(self, coordinator: Coordinator, descriptor: int, silence: Silence) -> None:
        self.made: list[Sample] = []
        self._coordinator, self._file, self._silence = coordinator, FileIO(descriptor), silence
        self._before = 0  # bytes that came before those of which `made` is made

    def readinto(self, buffer: memoryview, /) -> int:
        """See ByteStream."""
        self._make_room()
        while (count := self._file.readinto(buffer)) is None:
            self._wait()
        self._silence.bytes += count
        fifo.tell_if_empty(self._silence)
        return count

    def read(self, size: int = -1, /) -> bytes:
        """See ByteStream."""
        if size < 0:
            return b"".join(iter(lambda: self.read(fifo.PIPE_BYTES), b""))
        buffer = memoryview(bytearray(size))
        return bytes(buffer[: self.readinto(buffer)])

    def close(self) -> None:
        """See ByteStream."""
        self._file.close()

    def deal(self) -> None:
        """Deals out what has been made."""
        come = self._silence.bytes
        if self.made:
            # In place: the loop that fills it holds the same list.
            self._coordinator.epoch.deal(self.made[:], max(1, come - self._before))
            self.made.clear()
        self._before = come

    def _make_room(self) -> None:
        """Deals out what has been made, and returns when the readers have room for more."""
        self.deal()
        self._coordinator.look(0)
        since, tell_after = time.monotonic(), TELL_SECONDS
        while True:
            _stop_if_abandoned(self._coordinator)
            epoch = self._coordinator.epoch
            if epoch.waiting_size * max(1, len(epoch.parts)) < ROOM:
                return
            self._coordinator.look(LOOK_SECONDS)
            waited = time.monotonic() - since
            if epoch.is_settled and waited > tell_after:
                tell_after *= 2
                slow = max(epoch.parts.values(), key=lambda part: part.outbox.size)
                tell(
                    f"{self._silence.who}: held up for {waited:.0f} s, since the reader of share {slow.index} "
                    "takes nothing; the others wait for it"
                )

    def _wait(self) -> None:
        """Until the FIFO can be read."""
        self._silence.begin()
        while not self._coordinator.look(min(LOOK_SECONDS, self._silence.patience), self._file.fileno()):
            if self._coordinator.epoch.is_awaited:
                self._silence.check()
            else:  # read ahead: nobody misses the bytes yet
                self._silence.begin()
            _stop_if_abandoned(self._coordinator)


def main(address: str, folder: str) -> None:
    """Listen at the address, let the process that started this one continue, and serve the FIFOs of the folder."""
    if address.startswith("@"):
        address = "\0" + address[1:]
    else:
        Path(address).unlink(missing_ok=True)  # of a broker that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
        if os.fork():
            os._exit(0)
        # Whoever stops the job sends these to everybody, and then the training still wants its samples.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        try:
            serve(listener, os.open(folder, os.O_RDONLY))
        finally:
            if not address.startswith("\0"):
                Path(address).unlink(missing_ok=True)
