"""One Pipe for several readers of a host: each of them gets the whole byte stream of an epoch.

A FIFO can have one reader, and a host has many: torchrun's ranks, and DataLoader workers. So one process per channel, the tee,
reads the FIFO into a ring of shared memory, from which all readers copy the bytes. It knows no formats, samples or states.

    feeder -> FIFO -> tee (tee_server.py) -> ring -> rank 0, which keeps its samples of the stream
                                                  -> rank 1, which keeps its own

The first reader that finds no tee starts it. The container's first process does not: a notebook or a script of the SDK has none of
ours, and a tee that PID 1 had started would still have to learn from its readers for which processes it runs.

Both ends send lines of JSON over a Unix socket: a Request; how many bytes were written to the ring, and how many were read of it.

The ring is small. So a reader that waits for another one outside of the stream, as ranks in lockstep do, must have read what the
other one needs until then: if n readers take every n-th sample, each reads a round of n samples before it yields its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import owner_process
from sagemaker_channels.meter import received, waited
from sagemaker_channels.readers import fifo
from sagemaker_channels.readers.tee_epoch import Request
from sagemaker_channels.sample import ByteStream

# The tee gets the path of its starter, and so the same modules, whatever environment variables say.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from sagemaker_channels.readers.tee_server import main
main(*sys.argv[2:])
"""
_START_SECONDS = 60
_LAUNCH_VARIABLES = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def open_stream(
    channel: Channel, epoch: int, readers: int, *, finished: bool = False, reader: int | None = None
) -> ByteStream | None:
    """Open the bytes of an epoch: directly from the FIFO for the only reader of a host, else from the host's tee.

    It does not wait for the other readers; the first read does.

    Args:
        channel: The Pipe channel.
        epoch: The epoch, counted as the job counts them.
        readers: The number of processes or threads of this host that read the epoch.
        finished: This reader needs nothing of the epoch, and the others must not wait for it. The process may end afterwards.
        reader: Which of the readers this is, the same one in every epoch; None: it is known by its thread.

    Returns:
        The stream; None if `finished`.

    Raises:
        ChannelError: The epoch cannot be read. Reading raises it, too: readers are missing or contradict each other, the feeder is
            silent, or the tee has died.
    """
    owner, rank = owner_process(), os.environ.get("RANK")
    request = Request(
        epoch,
        readers,
        f"{os.getpid()}/{threading.get_native_id()}" if reader is None else str(reader),
        finished,
        owner,
        f"process {owner}" if rank is None else f"rank {rank}",
        int(os.environ.get("LOCAL_WORLD_SIZE") or 0),
        " ".join(os.environ.get(name, "") for name in _LAUNCH_VARIABLES).strip(),
    )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        connection = _connect(channel)
        if connection is None and readers == 1:
            return None if finished else fifo.open_fifo(channel, epoch, fifo.wait_seconds())
        connection = connection or _start(channel)
        if connection is None:
            continue
        answer, ring = _ask(connection, request)
        if ring is None:
            connection.close()  # That tee was about to end; the next one answers.
        elif finished:
            connection.close()
            return None
        else:
            return _TeeStream(connection, answer, ring, channel.name, epoch)
    raise ChannelError(
        f"channel {channel.name!r}: the process that reads the Pipe for this host does not answer; see the log for why"
    )


def _ask(connection: socket.socket, request: Request) -> tuple[bytes, mmap.mmap | None]:
    """Return the tee's answer and its ring; no ring if it has ended."""
    answer: bytes = b""
    descriptors: list[int] = []
    with suppress(ConnectionError):
        connection.sendall(line(asdict(request)))
        answer, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 1)
    if not descriptors:
        return answer, None
    try:
        return answer, mmap.mmap(descriptors[0], 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptors[0])


class _TeeStream:
    """A reader's stream of one epoch. Positions count the bytes of all epochs that the tee has read."""

    def __init__(self, connection: socket.socket, answer: bytes, ring: mmap.mmap, channel: str, epoch: int) -> None:
        self._socket, self._ring, self._view = connection, ring, memoryview(ring)
        self._channel, self._epoch, self._process = channel, epoch, os.getpid()
        self._hangup = select.poll()
        self._hangup.register(connection, 0)
        self._begin = self._read = self._reported = self._written = 0
        self._begun, self._ended, self._error, self._part = False, False, "", b""
        self._take(answer)

    def readinto(self, buffer: memoryview, /) -> int:
        while self._read == self._written:
            self._report()
            if self._error:
                raise ChannelError(self._error)
            if self._ended:
                return 0
            begin = time.perf_counter()
            self._receive()
            waited(begin)
        size = len(self._view)
        start = self._read % size
        count = min(len(buffer), self._written - self._read, size - start)
        buffer[:count] = self._view[start : start + count]
        while self._hangup.poll(0):  # The bytes may have been overwritten.
            self._receive()
        self._read += count
        if self._read - self._reported >= size // 8:
            self._report()
        received(count)
        return count

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(fifo.PIPE_BYTES), b""))
        data = bytearray(min(size, max(self._written - self._read, fifo.PIPE_BYTES)))
        count = self.readinto(memoryview(data))
        return bytes(memoryview(data)[:count])

    def close(self) -> None:
        if self._process == os.getpid():  # A forked process has the connection, too.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._view.release()
        self._ring.close()

    def _report(self) -> None:
        """Report how far this reader is, so that the tee can overwrite what is before."""
        if self._reported != self._read:
            self._reported = self._read
            with suppress(OSError):  # `_receive` notices that the tee has died.
                self._socket.sendall(line(self._read))

    def _receive(self) -> None:
        """Wait for the tee's next report. Raises ChannelError if it ends before."""
        data = b""
        with suppress(ConnectionError):
            data = self._socket.recv(1 << 16)
        if not data:
            died = (
                f"channel {self._channel!r}: the process that reads the Pipe for this host has died, after "
                f"{self._read - self._begin:,} bytes of epoch {self._epoch}; see the log for why, and start the job again"
            )
            raise ChannelError(self._error or died)
        self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, self._part = (self._part + data).split(b"\n")
        for report in map(json.loads, lines):
            if report is None:  # The request was received.
                continue
            begin, self._written, self._ended, self._error = report
            if not self._begun:
                self._begun, self._begin, self._read, self._reported = True, begin, begin, begin


def line(value: Any) -> bytes:
    """Return a message between a reader and the tee."""
    return json.dumps(value).encode() + b"\n"


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the other end belongs to this process's user."""
    if sys.platform != "linux":
        return True  # The socket is a file in the user's own temporary folder.
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())


def address(channel: Channel) -> str:
    """Return the address of the channel's tee: on Linux an abstract name, which disappears with its process.

    It is made of the folder's inode, not of its path: containers and local hosts can see different folders under one path. The
    tee keeps the folder open, so that no later folder gets this inode while the tee runs.
    """
    folder = channel.path.parent.stat()
    what = f"{folder.st_dev} {folder.st_ino} {channel.name} {os.getuid()}"
    name = f"launcher-tee-{hashlib.sha256(what.encode()).hexdigest()[:24]}"
    return f"\0{name}" if sys.platform == "linux" else str(Path(tempfile.gettempdir()) / name)


def _connect(channel: Channel) -> socket.socket | None:
    with ExitStack() as opened, suppress(FileNotFoundError, ConnectionRefusedError):
        connection = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.connect(address(channel))
        if not is_same_user(connection):
            raise ChannelError(f"channel {channel.name!r}: another user's process reads this Pipe; end that process")
        opened.pop_all()
        return connection
    return None


def _start(channel: Channel) -> socket.socket | None:
    """Start a tee, unless another reader just did, and connect to it; return None if it ended immediately.

    The channels' folder is locked meanwhile, so that no lock file is needed. The new process forks once it listens: its starter
    does not wait for its end.
    """
    folder = os.open(channel.path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        connection = _connect(channel)
        if connection is not None:
            return connection
        command = [sys.executable, "-S", "-c", _PROGRAM, json.dumps([str(Path(each).absolute()) for each in sys.path])]
        started = subprocess.run(
            [*command, address(channel).replace("\0", "@"), channel.name, str(channel.path.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C stops the training, and the tee ends with it.
            timeout=_START_SECONDS,
            check=False,
        )
        connection = _connect(channel)
        # If a connection exists, a tee whose starter was killed took the address first.
        if started.returncode and connection is None:
            raise ChannelError(
                f"channel {channel.name!r}: the process that reads the Pipe for this host could not be started (exit code "
                f"{started.returncode}); see the log for why, or use num_workers 0 or 1 and one rank per host"
            )
        return connection
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # A worker forked meanwhile holds the descriptor, too.
        os.close(folder)
