"""The broker's process: one thread around poll().

The channel's format asks for bytes: `_Stream.readinto` then assigns the samples made so far, serves the readers, and returns when
the FIFO has bytes and the readers have room. So samples never wait for later bytes, and the format needs no change.

Memory holds what one read of the FIFO returns, and up to ROOM bytes for all readers together (a larger sample passes alone).
"""

from __future__ import annotations

import os
import signal
import socket
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from sagemaker_channels.broker import protocol
from sagemaker_channels.broker.coordinator import POLL_SECONDS, Coordinator, JobOverError
from sagemaker_channels.fetching.silence import WARN_SECONDS, Silence, warn
from sagemaker_channels.readers import fifo
from sagemaker_channels.records import Format, format_of
from sagemaker_channels.records.cursor import Cursor
from sagemaker_channels.records.damage import Damage
from sagemaker_channels.records.recordio import recordio
from sagemaker_channels.sample import ByteStream, Sample

ROOM = 64 << 20  # bytes for all readers together, before the FIFO is left to fill
FIFO_POLL_SECONDS = 0.02  # between two checks for the next FIFO


class _AbandonedError(Exception):
    """No reader wants more of the epoch."""


def serve(listener: socket.socket, folder: int) -> None:
    """Read one epoch after the other for the readers that connect, until the job is over. For the arguments see Coordinator."""
    coordinator = Coordinator(listener, folder)
    try:
        request = coordinator.first_request()
        while True:
            coordinator.next_epoch(_read_epoch(coordinator, request))
    except JobOverError:
        return


def _read_epoch(coordinator: Coordinator, request: protocol.Request) -> bytes:
    """Read and assign the coordinator's epoch; return the frame that ends it."""
    try:
        descriptor, who = _open(coordinator, request)
        stream = _Stream(coordinator, descriptor, Silence(who, request.wait_seconds))
        try:
            damage = Damage(
                request.skip_damaged, request.channel, coordinator.epoch.number, Path(request.path).parents[2]
            )
            cursor = Cursor(0, damage.skip if damage.most else None)
            for sample in _split(stream, format_of(request.format), request.record_wrapper == "RecordIO", cursor):
                stream.made.append(sample)
        finally:
            stream.assign()  # before an error, too: the samples before it are good
            stream.close()
    except _AbandonedError:
        return protocol.frame(protocol.END)
    except JobOverError:
        raise
    except Exception as error:  # noqa: BLE001 - every error must reach the readers
        if type(error).__name__ not in protocol.ERRORS:
            traceback.print_exc()
        return protocol.error_frame(error)
    return protocol.frame(protocol.END)


def _open(coordinator: Coordinator, request: protocol.Request) -> tuple[int, str]:
    """Wait for the FIFO and its writer; return its descriptor and its feeder's name. The timeout counts while a reader waits."""
    since = time.monotonic()
    pending = fifo.PendingFifo(request.as_channel(), coordinator.epoch.number, coordinator.owners)
    patience = pending.timeout(request.wait_seconds)
    try:
        while True:
            coordinator.check_folder()
            if (descriptor := pending.try_open()) is not None:
                break
            seconds = FIFO_POLL_SECONDS if coordinator.epoch.is_awaited else POLL_SECONDS
            coordinator.poll(seconds, None if pending.descriptor < 0 else pending.descriptor)
            _stop_if_abandoned(coordinator)
            now = time.monotonic()
            if not coordinator.epoch.is_awaited:
                since = now
            if now - since > patience:
                raise pending.timeout_error(patience)
    finally:
        pending.close()
    return descriptor, f"channel {request.channel!r}: the feeder of {pending.path}"


def _stop_if_abandoned(coordinator: Coordinator) -> None:
    if coordinator.epoch.is_abandoned:
        raise _AbandonedError


def _split(stream: ByteStream, form: Format, wrapped: bool, cursor: Cursor) -> Iterator[Sample]:
    """Yield a stream's samples, or its records if the readers decode them. `wrapped`: each object is in a RecordIO record."""
    if wrapped:
        yield from recordio.unwrapped(stream, form.split, cursor)
        return
    if form.framing is None:
        yield from form.split(stream, None, cursor)
        return
    offset = 0
    for sample in form.framing.split(stream, None, cursor):
        sample[protocol.OFFSET] = offset
        offset = abs(cursor.position)
        yield sample


class _Stream(fifo.FifoStream):
    """The bytes of an epoch for the format, and the samples `made` from them until they are assigned."""

    def __init__(self, coordinator: Coordinator, descriptor: int, silence: Silence) -> None:
        super().__init__(descriptor, silence)
        self.made: list[Sample] = []
        self._coordinator = coordinator
        self._before = 0  # bytes before those that `made` is made from

    def readinto(self, buffer: memoryview, /) -> int:
        self._make_room()
        return super().readinto(buffer)

    def read(self, size: int = -1, /) -> bytes:
        self._make_room()
        return super().read(size)

    def assign(self) -> None:
        received = self.silence.bytes
        if self.made:
            # Cleared in place, because the loop that fills it holds the same list.
            self._coordinator.epoch.assign(self.made[:], max(1, received - self._before))
            self.made.clear()
        self._before = received

    def _make_room(self) -> None:
        """Assign the samples that have been made, and wait until the readers have room for more."""
        self.assign()
        self._coordinator.poll(0)
        since, warn_after = time.monotonic(), WARN_SECONDS
        while True:
            _stop_if_abandoned(self._coordinator)
            epoch = self._coordinator.epoch
            if epoch.waiting_size * max(1, len(epoch.shards)) < ROOM:
                return
            self._coordinator.poll(POLL_SECONDS)
            waited = time.monotonic() - since
            if epoch.is_settled and waited > warn_after:
                warn_after *= 2
                slow = max(epoch.shards.values(), key=lambda shard: shard.outbox.size)
                warn(
                    f"{self.silence.who}: blocked for {waited:.0f} s, because the reader of shard {slow.index} reads "
                    "nothing; the others wait for it"
                )

    def wait(self) -> None:
        """Serve the readers until the FIFO can be read."""
        self.silence.begin()
        while not self._coordinator.poll(min(POLL_SECONDS, self.silence.patience), self.file.fileno()):
            if self._coordinator.epoch.is_awaited:
                self.silence.check()
            else:  # The epoch is read ahead, and no reader misses the bytes yet.
                self.silence.begin()
            _stop_if_abandoned(self._coordinator)


def main(address: str, folder: str) -> None:
    """Listen at the address, let the process that started this one continue, and serve the FIFOs of the folder."""
    if address.startswith("@"):
        address = "\0" + address[1:]
    else:
        Path(address).unlink(missing_ok=True)  # left by a broker that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
        if os.fork():
            os._exit(0)
        # A terminal or SageMaker sends these to all processes, and the training may read on until it ends.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        try:
            serve(listener, os.open(folder, os.O_RDONLY))
        finally:
            if not address.startswith("\0"):
                Path(address).unlink(missing_ok=True)
