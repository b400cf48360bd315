"""Sends large fields between processes of this machine through shared memory: a DataLoader's batches, a Pipe's samples.

A DataLoader's queue pickles batches into a pipe of 64 KiB: two processes wake each other a hundred times per batch, and move about
800 MB/s on a small machine. So a worker's datasets yield large fields as `SharedBytes`, which multiprocessing's pickler writes to
shared memory that the worker reuses; only their position goes through the queue. The training process gets plain bytes of its own.
A Pipe's broker sends its samples in the same way, and a worker that does not transform them sends the positions on.

The memory is files without names (memfd), which the receiver opens by the sender's entry in /proc. So nothing is left however
either process ends, and a small /dev/shm is no limit. At a file's beginning is a byte for each field that is still to be read. The
sender sets it, and the one process that has the field's position clears it, by a system call, which keeps the order. Without memfd
and /proc (they are Linux's), or if the memory is full, bytes are sent as usual.
"""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import suppress
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

LEAST_BYTES = 1 << 13  # Smaller fields are pickled as fast.
_PIECE_BYTES = 1 << 22  # A larger field gets its own piece.
_MOST_BYTES = 1 << 27  # for all pieces of a process
_AHEAD_BYTES = 1 << 25  # more pieces only if a reader waits
_HEADER = mmap.PAGESIZE  # bytes at a piece's beginning, one for each field: 1 until it has been read


class _Reference(NamedTuple):
    """Where a field is, for the process that reads it."""

    # Process numbers and descriptors are reused, so they do not identify a piece.
    token: bytes
    owner: int
    descriptor: int
    number: int
    start: int
    size: int


class SharedBytes(bytes):
    """Bytes that are cheap to send to another process of this machine, which receives plain bytes."""

    reference: _Reference | None = None  # where they were copied from, and stay until they are sent on or dropped

    def __del__(self) -> None:
        if self.reference is not None:
            _release(self.reference)

    def __reduce__(self) -> Any:
        return bytes, (bytes(memoryview(self)),)  # for other picklers than multiprocessing's


def shared(sample: Any) -> Any:
    """Return a worker's sample with its large fields as SharedBytes.

    Args:
        sample: A dict, which is changed in place, or bytes; any other type is returned as it is.
    """
    if not is_ready(os.getppid()):
        return sample
    if type(sample) is dict:
        for name, value in sample.items():
            if type(value) is bytes and len(value) >= LEAST_BYTES:
                sample[name] = SharedBytes(value)
    elif type(sample) is bytes and len(sample) >= LEAST_BYTES:
        return SharedBytes(sample)
    return sample


class Field:
    """Bytes in shared memory of this process. Pickled, it becomes bytes in the process that unpickles it, which must be one."""

    __slots__ = ("_is_sent", "_memory", "_reference")

    def __init__(self, memory: mmap.mmap, reference: _Reference) -> None:
        self._memory, self._reference, self._is_sent = memory, reference, False

    def __len__(self) -> int:
        return self._reference.size

    @property
    def nbytes(self) -> int:
        return self._reference.size

    def __reduce__(self) -> Any:
        self._is_sent = True
        return _take, tuple(self._reference)

    def __del__(self) -> None:
        if not self._is_sent:
            self._memory[self._reference.number] = 0


class Piece:
    """Shared memory of the sender, which is filled again once all its fields have been read."""

    def __init__(self) -> None:
        self.age = 0  # epochs since a field was lent
        self._token = os.urandom(16)
        self._descriptor = os.memfd_create("hand-over")
        self._memory = self._sized(_PIECE_BYTES)
        self._end, self._fields = _HEADER, 0

    def __len__(self) -> int:
        return len(self._memory)

    def is_free(self) -> bool:
        return self._memory.find(b"\1", 0, _HEADER) < 0

    def begin(self, size: int) -> memoryview:
        """Start filling it again; return the memory for its fields, of `size` bytes at least."""
        self._end, self._fields = _HEADER, 0
        if _HEADER + size > len(self._memory):
            self._memory = self._sized(_HEADER + size)
        return memoryview(self._memory)[_HEADER:]

    def lend(self, start: int, size: int) -> Field | None:
        """Return a part of the view as a field; None if there are too many."""
        number = self._fields
        if number == _HEADER:
            return None
        self._fields, self.age = number + 1, 0
        self._memory[number] = 1
        return Field(
            self._memory, _Reference(self._token, os.getpid(), self._descriptor, number, _HEADER + start, size)
        )

    def put(self, data: bytes) -> Field | None:
        """Write the data behind what was put before; return None if it does not fit."""
        start, end = self._end, self._end + len(data)
        if end > len(self._memory):
            return None
        self._memory[start:end] = data
        self._end = end
        return self.lend(start - _HEADER, len(data))

    def close(self) -> None:
        os.close(self._descriptor)

    def _sized(self, size: int) -> mmap.mmap:
        os.ftruncate(self._descriptor, size)
        return mmap.mmap(self._descriptor, size)


class Pieces:
    """The shared memory from which this process sends; `most` bytes of it."""

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._all: list[Piece] = []
        self._current: Piece | None = None
        self._lock = threading.Lock()  # Each queue pickles in its own thread.

    def put(self, data: bytes) -> Field | None:
        """Write the data; return None if there is no room."""
        with self._lock:
            if self._current is not None and (field := self._current.put(data)) is not None:
                return field
            self._current = self.free(len(data))
            if self._current is None:
                return None
            self._current.begin(len(data))
            return self._current.put(data)

    def free(self, size: int = 0) -> Piece | None:
        """Return a piece that can be begun with room for `size` bytes; None if there is none."""
        room = self._most - sum(map(len, self._all))
        for piece in self._all:
            if _HEADER + size <= len(piece) + room and piece.is_free():
                self._current = None if self._current is piece else self._current
                return piece
        if max(_PIECE_BYTES, _HEADER + size) > room:
            return None
        self._all.append(Piece())
        return self._all[-1]

    def has_room(self) -> bool:
        """Return whether a piece is free, of so few that reading ahead does not touch much memory for the first time."""
        return sum(map(len, self._all)) < min(_AHEAD_BYTES, self._most) or any(piece.is_free() for piece in self._all)

    def next_epoch(self) -> None:
        """Give up pieces that have fields of the epoch before the last one: their readers have left it early."""
        for piece in self._all[:]:
            piece.age += 1
            if piece.age > 2 and not piece.is_free():
                self._all.remove(piece)
                self._current = None if self._current is piece else self._current
                piece.close()


def _reduce(data: SharedBytes) -> Any:
    reference, data.reference = data.reference, None
    if reference is not None:
        return _take, tuple(reference)
    return (_pieces.put(data) or data).__reduce__()


class _Opened(NamedTuple):
    """A sender's piece, as the receiver has opened it."""

    path: str
    descriptor: int
    memory: mmap.mmap

    def close(self) -> None:
        self.memory.close()
        os.close(self.descriptor)


def _take(*place: Any) -> bytes:
    reference = _Reference(*place)
    end = reference.start + reference.size
    with _lock:
        opened = _opened.get(reference.token)
        if opened is None or len(opened.memory) < end:
            opened = _open(reference.token, f"/proc/{reference.owner}/fd/{reference.descriptor}")
        data = opened.memory[reference.start : end]
        if not sends_on:
            os.pwrite(opened.descriptor, b"\0", reference.number)
            return data
    kept = SharedBytes(data)
    kept.reference = reference
    return kept


def _release(reference: _Reference) -> None:
    """Let the sender use a field's memory again."""
    with _lock:
        opened = _opened.get(reference.token)
        if opened is not None:
            os.pwrite(opened.descriptor, b"\0", reference.number)


def _open(token: bytes, path: str) -> _Opened:
    """Map a piece, again if it has grown, and unmap those whose sender has ended."""
    if not _opened:
        _keep_memory()
    for known, each in list(_opened.items()):
        if known == token or not Path(each.path).exists():
            _opened.pop(known).close()
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    opened = _opened[token] = _Opened(path, descriptor, mmap.mmap(descriptor, os.fstat(descriptor).st_size))
    return opened


def _keep_memory() -> None:
    """Let glibc keep up to 64 MB that one batch frees for the next one, instead of returning it to the kernel.

    Otherwise the kernel clears every page of every batch, which costs twice as much as copying. glibc derives this limit from the
    largest block that was ever freed (mallopt(3), M_MMAP_THRESHOLD). The block freed here is never written to, so it uses no
    memory. Other C libraries ignore it.
    """
    bytes(31 << 20)


@cache
def is_ready(receiver: int) -> bool:
    """Prepare a sender; return False if there is no memfd, or processes cannot open each other's descriptors."""
    with suppress(AttributeError, OSError):
        descriptor = os.memfd_create("hand-over")
        try:
            os.close(os.open(f"/proc/{os.getpid()}/fd/{descriptor}", os.O_RDWR))
            any(Path(f"/proc/{receiver}/fd").iterdir())
        finally:
            os.close(descriptor)
        _keep_memory()
        return True
    return False


def _forget() -> None:
    """Drop the parent's memory in a forked process."""
    global _pieces, _lock
    _pieces, _lock = Pieces(), threading.RLock()
    for each in _opened.values():
        each.close()
    _opened.clear()


sends_on = False  # whether this process sends the fields on that it receives
_pieces = Pieces()
_opened: dict[bytes, _Opened] = {}
_lock = threading.RLock()  # A DataLoader with pin_memory reads batches in its own thread; SharedBytes end in any.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
ForkingPickler.register(SharedBytes, _reduce)
