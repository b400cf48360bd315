"""What readers and their broker say to each other over a Unix socket.

A reader sends one line of JSON, a Request. The broker answers with frames: WELCOME, then SAMPLES as they come (BLOCK where a
shuffled block ends with them), then END or ERROR. Samples are pickled (protocol 5). Large fields travel beside the pickle,
straight from the bytes that the format made into the bytes that the reader's sample gets: for them pickling would be a third
copy.

Pickles are not safe from strangers: both ends make sure that the other one belongs to the same user.
"""

from __future__ import annotations

import base64
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
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from entrypoints.errors import ChannelError, CorruptError
from entrypoints.job.environment import Channel
from entrypoints.order.sharding import Share
from entrypoints.records import Format
from entrypoints.sample import Sample

WELCOME, SAMPLES, BLOCK, END, ERROR = b"W", b"S", b"B", b"E", b"X"
HEADER = struct.Struct("<cIQ")  # kind, number of fields beside the pickle, bytes of the pickle
LENGTH = struct.Struct("<Q")  # one per field beside the pickle, between the header and the pickle
LARGE = 1 << 14  # bytes from which a field travels beside the pickle: a system call costs as much as copying some KiB
_PICKLED = "pickle:"
SEND_BYTES = (
    1 << 22
)  # asked for a socket: what it holds is what reader and broker need not wait for each other; Linux gives less
ERRORS = {
    error.__name__: error for error in (ChannelError, CorruptError, ImportError)
}  # those that readers get as they are


@dataclass(frozen=True)
class Request:
    """What a reader asks for, and whom the broker works for."""

    channel: str
    path: str  # the channel's, of which the FIFO's is made
    record_wrapper: str
    format: str  # a format_reference
    epoch: int
    index: int  # this and the next three: see Share
    count: int
    readers: int
    workers: int
    wait_seconds: float
    block: int  # samples of a share that are shuffled together; 0 where none are
    block_bytes: int  # of a share's samples with which a block ends, too
    owner: int  # the process of which the reader is a worker, or which is the reader
    launch: str  # differs when torchrun has started the ranks again; empty without torchrun
    finished: bool  # nothing of the share is left to read: the request only says that no reader will come for it

    def encode(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes | bytearray) -> Request:
        """The opposite of `encode`."""
        return cls(**json.loads(line))

    @property
    def share(self) -> Share:
        """The reader's share."""
        return Share(self.index, self.count, self.readers, self.workers)

    def as_channel(self) -> Channel:
        """The channel, as far as reading its FIFO takes."""
        return Channel(self.channel, "Pipe", None, "", self.record_wrapper, Path(self.path))


def format_reference(form: Format) -> str:
    """A format in words that the broker understands: a module's name, or a format with its options."""
    if isinstance(form, ModuleType):
        return form.__name__
    return _PICKLED + base64.b64encode(pickle.dumps(form)).decode()


def referred_format(reference: str) -> Format:
    """The opposite of `format_reference`."""
    if reference.startswith(_PICKLED):
        form: Format = pickle.loads(base64.b64decode(reference[len(_PICKLED) :]))
        return form
    return cast(Format, import_module(reference))


def address(channel: Channel) -> str:
    """Where the channel's broker listens: on Linux a name that is no file and goes with its process.

    Made of the folder's identity, not of its name: containers and local hosts can see different folders by one name. The broker
    keeps the folder open, so that no later folder has this identity before the broker has ended.
    """
    folder = channel.path.parent.stat()
    what = f"{folder.st_dev} {folder.st_ino} {channel.name} {os.getuid()}"
    name = f"launcher-pipe-{hashlib.sha256(what.encode()).hexdigest()[:24]}"
    return f"\0{name}" if sys.platform == "linux" else str(Path(tempfile.gettempdir()) / name)


def is_ours(connection: socket.socket) -> bool:
    """Whether the other end belongs to our user."""
    if sys.platform != "linux":
        return True  # there the socket is a file in the user's own folder
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """A frame that is no samples."""
    return HEADER.pack(kind, 0, len(content)) + content


def error_frame(error: Exception) -> bytes:
    """An ERROR; what is none of ERRORS becomes a ChannelError that names it."""
    name, text = type(error).__name__, str(error)
    if name not in ERRORS:
        name, text = ChannelError.__name__, f"the process that reads the Pipe failed: {name}: {text}"
    return frame(ERROR, json.dumps([name, text]).encode())


def error_of(content: bytes) -> Exception:
    """The exception of an ERROR."""
    name, text = json.loads(content)
    return ERRORS[name](text)


def samples_frame(samples: Sequence[Sample], size: int, kind: bytes = SAMPLES) -> list[bytes | memoryview]:
    """SAMPLES or BLOCK as pieces that make a frame when sent one after the other; `size` is about how many bytes they are."""
    beside: list[pickle.PickleBuffer] = []
    if size >= LARGE * len(samples):
        samples = [
            {
                name: pickle.PickleBuffer(value) if type(value) is bytes and len(value) >= LARGE else value
                for name, value in sample.items()
            }
            for sample in samples
        ]

    def stays(buffer: pickle.PickleBuffer) -> bool:
        if type(buffer.raw().obj) is not bytes:
            return True  # an array: out of bytes it would come as one that cannot be written to
        beside.append(buffer)
        return False

    content = pickle.dumps(samples, 5, buffer_callback=stays)
    fields = [each.raw() for each in beside]
    lengths = b"".join([LENGTH.pack(len(each)) for each in fields])
    return [HEADER.pack(kind, len(fields), len(content)) + lengths, content, *fields]


def receive_frame(connection: socket.socket) -> tuple[bytes, bytes, list[bytes]]:
    """The next frame: kind, content, fields beside it. Raises EOFError where the connection ends before."""
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
    while data and (size := size - len(data)):  # a signal came between
        pieces.append(data := connection.recv(size, socket.MSG_WAITALL))
    if size:
        raise EOFError
    return b"".join(pieces)
