"""The protocol between a broker and its readers, over a Unix socket.

A reader sends one line of JSON, a Request. The broker answers with frames: WELCOME, then SAMPLES (BLOCK if a shuffled block ends
with them), then END or ERROR. Samples are pickled (protocol 5). Large fields are sent beside the pickle, directly from the bytes
that the format made to the bytes of the reader's sample; pickling them would be a third copy.

Unpickling runs code, so both ends check that the other one belongs to the same user.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.sample import Sample

WELCOME, SAMPLES, BLOCK, END, ERROR = b"W", b"S", b"B", b"E", b"X"
HEADER = struct.Struct("<cIQ")  # kind, number of fields beside the pickle, bytes of the pickle
LENGTH = struct.Struct("<Q")  # one per field beside the pickle, between the header and the pickle
LARGE = 1 << 14  # bytes from which a field is sent beside the pickle; a system call costs as much as copying some KiB
# Requested for a socket's buffer: reader and broker wait for each other less often. Linux grants less.
SEND_BYTES = 1 << 22
OFFSET = "__offset__"  # a record's offset in the stream, for errors; in place of samples, if decoding them takes long
# Errors that are raised in the reader with their own type.
ERRORS = {error.__name__: error for error in (ChannelError, CorruptError, ImportError)}


@dataclass(frozen=True)
class Request:
    """A reader's request for its shard of one epoch."""

    channel: str
    path: str  # the channel's, from which the FIFO's path is made
    record_wrapper: str
    format: str  # what names it: see sagemaker_channels.records
    epoch: int
    shard: Shard
    wait_seconds: float
    block: int  # samples of a shard that are shuffled together; 0 without shuffling
    block_bytes: int  # bytes of a shard's samples that end a block, too
    owner: int  # the process that reads, or whose worker reads
    launch: str  # differs after torchrun has restarted the ranks; empty without torchrun
    finished: bool  # Nothing of the shard is left to read, and no reader will ask for it.
    left: str = ""  # The Work that the shard is of: what is left of the epoch, if other readers had begun it.
    skip_damaged: int = 0  # how many damaged records the broker may skip in an epoch

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes | bytearray) -> Request:
        fields = json.loads(line)
        return cls(**{**fields, "shard": Shard(**fields["shard"])})

    def as_channel(self) -> Channel:
        return Channel(self.channel, "Pipe", None, "", self.record_wrapper, Path(self.path))


def address(channel: Channel) -> str:
    """Return the address of the channel's broker: on Linux an abstract name, which disappears with its process.

    It is made of the folder's inode, not of its path: containers and local hosts can see different folders under one path. The
    broker keeps the folder open, so that no later folder gets this inode while the broker runs.
    """
    folder = channel.path.parent.stat()
    what = f"{folder.st_dev} {folder.st_ino} {channel.name} {os.getuid()}"
    name = f"launcher-pipe-{hashlib.sha256(what.encode()).hexdigest()[:24]}"
    return f"\0{name}" if sys.platform == "linux" else str(Path(tempfile.gettempdir()) / name)


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the other end belongs to this process's user."""
    if sys.platform != "linux":
        return True  # The socket is a file in the user's own temporary folder.
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """Return a frame without samples."""
    return HEADER.pack(kind, 0, len(content)) + content


def error_frame(error: Exception) -> bytes:
    """Return an ERROR frame; an error of a type that is not in ERRORS becomes a ChannelError that names it."""
    name, text = type(error).__name__, str(error)
    if name not in ERRORS:
        name, text = ChannelError.__name__, f"the process that reads the Pipe failed: {name}: {text}"
    return frame(ERROR, json.dumps([name, text]).encode())


def error_of(content: bytes) -> Exception:
    """Return the exception of an ERROR frame's content."""
    name, text = json.loads(content)
    return ERRORS[name](text)


def samples_frame(samples: Sequence[Sample], size: int, kind: bytes = SAMPLES) -> list[bytes | memoryview]:
    """Return a SAMPLES or BLOCK frame of samples of about `size` bytes, as pieces to send one after the other."""
    beside: list[pickle.PickleBuffer] = []
    if size >= LARGE * len(samples):
        samples = [
            {
                name: pickle.PickleBuffer(value) if type(value) is bytes and len(value) >= LARGE else value
                for name, value in sample.items()
            }
            for sample in samples
        ]

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        if type(buffer.raw().obj) is not bytes:
            return True  # Made of received bytes, an array would be read-only.
        beside.append(buffer)
        return False

    content = pickle.dumps(samples, 5, buffer_callback=stays_inside)
    fields = [each.raw() for each in beside]
    lengths = b"".join([LENGTH.pack(len(each)) for each in fields])
    return [HEADER.pack(kind, len(fields), len(content)) + lengths, content, *fields]


def receive_frame(connection: socket.socket) -> tuple[bytes, bytes, list[bytes]]:
    """Return the next frame: kind, content, fields beside it. Raises EOFError if the connection ends before."""
    kind, fields, length = HEADER.unpack(_receive(connection, HEADER.size))
    lengths = _receive(connection, fields * LENGTH.size)
    content = _receive(connection, length)
    return kind, content, [_receive(connection, each) for (each,) in LENGTH.iter_unpack(lengths)]


def _receive(connection: socket.socket, size: int) -> bytes:
    if not size:
        return b""
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) == size:
        return data
    pieces = [data]
    while data and (size := size - len(data)):  # A signal interrupted the call.
        pieces.append(data := connection.recv(size, socket.MSG_WAITALL))
    if size:
        raise EOFError
    return b"".join(pieces)
