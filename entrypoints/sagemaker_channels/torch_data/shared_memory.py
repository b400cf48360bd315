"""Sends large fields from a DataLoader's workers to the training process through shared memory (tensors: shared_tensors.py).

A DataLoader's queue pickles batches into a pipe of 64 KiB: two processes wake each other a hundred times per batch, and move about
800 MB/s on a small machine. So a worker's datasets yield large fields as `SharedBytes`, which multiprocessing's pickler writes to
shared memory that the worker reuses; only their position goes through the queue. The training process gets plain bytes of its own.
Any other pickler writes them as bytes, and how multiprocessing pickles other types is not changed.

The memory is a file without a name (memfd), which the training process opens by the worker's entry in /proc. So nothing is left
however either process ends, and a small /dev/shm is no limit. A counter at its beginning holds how many fields have been read;
only the training process writes it and only the worker reads it, both by system calls, which keep the order. Without memfd and
/proc (they are Linux's), or if the memory is full, bytes go through the queue as usual.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, TypeAlias

from sagemaker_channels.job.process_identity import unnamed_file

LEAST_BYTES = 1 << 13  # Smaller fields are pickled as fast.
PIECE_BYTES = 1 << 22  # A larger field gets its own piece.
MOST_BYTES = 1 << 27  # for all pieces of a worker
MOST_FIELDS = 4  # if that is more: a worker's batches in a loader's queue, and the next one
_HEADER = mmap.PAGESIZE
_COUNT = struct.Struct("<Q")
KEPT_BYTES = 31 << 20  # the largest block that glibc keeps

Buffer: TypeAlias = bytes | memoryview
# Of a field: its piece's token, process and descriptor, and the position in it.
Place: TypeAlias = tuple[bytes, int, int, int]


class SharedBytes(bytes):
    """Bytes that are cheap to send to another process of this machine, which receives plain bytes."""


def shared(sample: Any) -> Any:
    """Return a worker's sample with its large fields as SharedBytes: bytes, or a dict, which is changed in place.

    Any other type is returned as it is.
    """
    if not is_ready():
        return sample
    if type(sample) is dict:
        for name, value in sample.items():
            if type(value) is bytes and len(value) >= LEAST_BYTES:
                sample[name] = SharedBytes(value)
    elif type(sample) is bytes and len(sample) >= LEAST_BYTES:
        return SharedBytes(sample)
    return sample


class _Piece:
    """Shared memory of a worker, which is filled again once all its fields have been read."""

    def __init__(self) -> None:
        # Process numbers and descriptors are reused, so they do not identify a piece.
        self.token = os.urandom(16)
        self.owner = os.getpid()
        self.descriptor = unnamed_file("hand-over")
        self._given, self._end = 0, _HEADER  # fields that the training process reads
        self._memory = self._sized(PIECE_BYTES)

    def __len__(self) -> int:
        return len(self._memory)

    def is_free(self) -> bool:
        (taken,) = _COUNT.unpack(os.pread(self.descriptor, _COUNT.size, 0))
        return bool(taken == self._given)

    def begin(self, size: int) -> None:
        """Start filling it again, with room for `size` bytes at least."""
        self._end = _HEADER
        if _HEADER + size > len(self._memory):
            self._memory.close()
            self._memory = self._sized(_HEADER + size)

    def put(self, data: Buffer) -> Place | None:
        """Write a field and return its place; None if it does not fit."""
        start, end = self._end, self._end + len(data)
        if end > len(self._memory):
            return None
        self._memory[start:end] = data
        self._end, self._given = end, self._given + 1
        return self.token, self.owner, self.descriptor, start

    def _sized(self, size: int) -> mmap.mmap:
        os.ftruncate(self.descriptor, size)
        return mmap.mmap(self.descriptor, size)


class _Pieces:
    def __init__(self) -> None:
        self._all: list[_Piece] = []
        self._current: _Piece | None = None
        self._lock = threading.Lock()  # Each queue pickles in its own thread.

    def put(self, data: Buffer) -> Place | None:
        """Write the data and return its place; None if there is no room."""
        with self._lock:
            place = None if self._current is None else self._current.put(data)
            if place is None:
                self._current = self._begun(len(data))
                place = None if self._current is None else self._current.put(data)
            return place

    def _begun(self, size: int) -> _Piece | None:
        """Return a free piece, emptied, with room for so many bytes."""
        room = max(MOST_BYTES, MOST_FIELDS * (_HEADER + size)) - sum(map(len, self._all))
        for piece in self._all:
            if _HEADER + size <= len(piece) + room and piece.is_free():
                break
        else:
            if max(PIECE_BYTES, _HEADER + size) > room:
                return None
            piece = _Piece()
            self._all.append(piece)
        piece.begin(size)
        return piece


def put(data: Buffer) -> Place | None:
    """Write data for the training process and return its place; None if there is no room."""
    return _pieces.put(data)


def _reduce(data: SharedBytes) -> Any:
    place = put(data)
    return (bytes, (bytes(memoryview(data)),)) if place is None else (_take, (len(data), *place))


@dataclass
class _Opened:
    path: str
    descriptor: int
    memory: mmap.mmap = field(repr=False)
    taken: int = 0  # Fields read so far; the worker learns of them when the next piece is read.

    def acknowledge(self) -> None:
        os.pwrite(self.descriptor, _COUNT.pack(self.taken), 0)

    def close(self) -> None:
        self.memory.close()
        os.close(self.descriptor)


def _take(size: int, token: bytes, worker: int, descriptor: int, start: int) -> bytes:
    with _lock:
        return _memory(token, worker, descriptor, start + size)[start : start + size]


def take_into(array: Any, token: bytes, worker: int, descriptor: int, start: int) -> None:
    """Copy a field of a worker's memory into an array of its size."""
    end = start + len(array)
    with _lock:
        array[:] = memoryview(_memory(token, worker, descriptor, end))[start:end]


def _memory(token: bytes, worker: int, descriptor: int, end: int) -> mmap.mmap:
    """Return a worker's memory, of which one field is copied before the lock is released."""
    global _last
    opened = _opened.get(token)
    if opened is None or len(opened.memory) < end:
        opened = _open(token, f"/proc/{worker}/fd/{descriptor}")
    if _last is not opened:  # one system call per batch: it takes as long as copying 10 KB
        if _last is not None:
            _last.acknowledge()
        _last = opened
    opened.taken += 1
    return opened.memory


def _open(token: bytes, path: str) -> _Opened:
    """Map a piece, again if it has grown, and unmap those whose worker has ended."""
    global _last
    if not _opened:
        keep_memory()
    taken = _opened[token].taken if token in _opened else 0
    for known, each in list(_opened.items()):
        if known == token or not Path(each.path).exists():
            _opened.pop(known).close()
            _last = None if _last is each else _last
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    opened = _opened[token] = _Opened(path, descriptor, mmap.mmap(descriptor, os.fstat(descriptor).st_size), taken)
    return opened


def keep_memory() -> None:
    """Let glibc keep up to 64 MB that one batch frees for the next one, instead of returning it to the kernel.

    glibc derives this limit from the largest block that was ever freed (mallopt(3), M_MMAP_THRESHOLD). The block freed here is
    never written to, so it uses no memory. Other C libraries ignore it.
    """
    bytes(KEPT_BYTES)


@cache
def is_ready() -> bool:
    """Return whether a worker can use the memory: on Linux, if processes can open each other's descriptors."""
    with suppress(OSError):
        descriptor = unnamed_file("hand-over")
        try:
            os.close(os.open(f"/proc/{os.getpid()}/fd/{descriptor}", os.O_RDWR))
            any(Path(f"/proc/{os.getppid()}/fd").iterdir())
        finally:
            os.close(descriptor)
        keep_memory()
        return sys.platform == "linux"
    return False


def _forget() -> None:
    """Drop the parent's memory in a forked process."""
    global _pieces, _lock, _last
    _pieces, _lock, _last = _Pieces(), threading.Lock(), None
    for each in _opened.values():
        os.close(each.descriptor)  # Not the memory: another thread of the parent may have been copying from it.
    _opened.clear()


_pieces = _Pieces()
_opened: dict[bytes, _Opened] = {}
_last: _Opened | None = None  # the one of these that was read last
_lock = threading.Lock()  # A DataLoader with pin_memory reads batches in its own thread.
os.register_at_fork(after_in_child=_forget)
ForkingPickler.register(SharedBytes, _reduce)
