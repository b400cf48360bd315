"""The tee's process: reads the FIFOs of one channel, one epoch after the other, into a ring of shared memory for a host's readers.

One thread around poll(). Guarantees:

- The first epoch's FIFO is opened when all its readers have asked, and they get all of it. The following one is opened and read
  ahead, as far as the ring has room, when the last one was read to its end: positions count the bytes of all epochs.
- If some readers do not ask within LAUNCHER_FIFO_WAIT_SECONDS, the others get an error; sooner if a rank has ended.
- A reader that leaves, dies, or asks for a later epoch is not waited for. When all have, the FIFO is closed. The slowest one sets
  the pace, and is named on stderr if it reads nothing for long.
- The tee ends when the processes that it reads for have ended, even if their workers still run, and when the FIFOs' folder is
  deleted. One exception: a rank that needed nothing of an epoch may end before the others ask.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.fetching.silence import WARN_SECONDS, Silence, warn
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.readers import fifo
from sagemaker_channels.readers.tee_coordinator import POLL_SECONDS, STEP_BYTES, Coordinator, JobOverError

RING_BYTES = 8 << 20
FIFO_POLL_SECONDS = 0.02  # between two checks for the next FIFO
FIRST_SECONDS = 10.0  # until the first request; the reader that starts a tee sends one immediately


class _AbandonedError(Exception):
    """No reader wants more of the epoch."""


class _Stream(fifo.FifoStream):
    """An epoch's FIFO; the readers are served while it has no bytes."""

    def __init__(self, coordinator: Coordinator, descriptor: int, who: str) -> None:
        super().__init__(descriptor, Silence(who, fifo.wait_seconds()))
        self._coordinator = coordinator

    def wait(self) -> None:
        self._coordinator.tell_all()
        self.silence.begin()
        while not self._coordinator.poll(min(POLL_SECONDS, self.silence.patience), self.file.fileno()):
            _stop_if_abandoned(self._coordinator)
            if self._coordinator.epoch.is_settled:
                self.silence.check()
            else:  # It is read ahead, and no reader misses the bytes yet.
                self.silence.begin()


def serve(listener: socket.socket, channel: Channel) -> None:
    """Read one epoch after the other for the readers that connect. Raises JobOverError."""
    memory = _shared_memory(RING_BYTES)
    coordinator, ring = Coordinator(listener, channel, memory), memoryview(mmap.mmap(memory, RING_BYTES))
    deadline = time.monotonic() + FIRST_SECONDS
    while not coordinator.epoch.is_settled:
        if coordinator.epoch.number < 0 and time.monotonic() > deadline:
            raise JobOverError
        coordinator.poll(POLL_SECONDS)
    while True:
        error = ""
        try:
            _read_epoch(coordinator, channel, ring)
        except _AbandonedError:
            pass
        except ChannelError as reason:
            error = str(reason)
        except OSError as reason:
            error = f"channel {channel.name!r} cannot be read: {reason}"
        coordinator.next_epoch(error)


def _read_epoch(coordinator: Coordinator, channel: Channel, ring: memoryview) -> None:
    stream = _open(coordinator, channel)
    try:
        while True:
            room, start = _wait_for_room(coordinator, stream.silence.who), coordinator.written % RING_BYTES
            count = stream.readinto(ring[start : min(start + room, start + STEP_BYTES, RING_BYTES)])
            if not count:
                return
            coordinator.wrote(count)
    finally:
        stream.close()


def _open(coordinator: Coordinator, channel: Channel) -> _Stream:
    """Wait for the FIFO and its writer; the timeout counts while all readers wait."""
    since = time.monotonic()
    pending = fifo.PendingFifo(channel, coordinator.epoch.number, coordinator.owners)
    patience = pending.timeout(fifo.wait_seconds())
    try:
        while True:
            coordinator.check_folder()
            if (descriptor := pending.try_open()) is not None:
                break
            seconds = FIFO_POLL_SECONDS if coordinator.epoch.asked else POLL_SECONDS
            coordinator.poll(seconds, None if pending.descriptor < 0 else pending.descriptor)
            _stop_if_abandoned(coordinator)
            if not coordinator.epoch.is_settled:
                since = time.monotonic()
            if time.monotonic() - since > patience:
                raise pending.timeout_error(patience)
    finally:
        pending.close()
    return _Stream(coordinator, descriptor, f"channel {channel.name!r}: the feeder of {pending.path}")


def _wait_for_room(coordinator: Coordinator, who: str) -> int:
    """Wait until the ring has room for some bytes and return their number."""
    since, warn_after = time.monotonic(), WARN_SECONDS
    while True:
        _stop_if_abandoned(coordinator)
        position, slowest = coordinator.slowest()
        if room := position + RING_BYTES - coordinator.written:
            return room
        coordinator.poll(POLL_SECONDS)
        blocked = time.monotonic() - since
        if slowest and blocked > warn_after:
            warn_after *= 2
            warn(f"{who}: blocked for {blocked:.0f} s, because {slowest} reads nothing; the others wait for it")


def _stop_if_abandoned(coordinator: Coordinator) -> None:
    if coordinator.is_abandoned:
        raise _AbandonedError


def _shared_memory(size: int) -> int:
    """Return the descriptor of shared memory without a name."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("launcher-tee")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def main(address: str, name: str, path: str) -> None:
    """Listen at the address, let the process that started this one continue, and serve a channel."""
    if address.startswith("@"):
        address = "\0" + address[1:]
    else:
        Path(address).unlink(missing_ok=True)  # left by a tee that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(1024)
        if os.fork():
            os._exit(0)
        # A terminal or SageMaker sends these to all processes, and the training may read on until it ends.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        with suppress(JobOverError):
            serve(listener, Channel(name, "Pipe", None, "", "None", Path(path)))
        if not address.startswith("\0"):
            Path(address).unlink(missing_ok=True)
