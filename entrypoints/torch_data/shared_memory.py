"""Bytes from a DataLoader's workers at the speed of memory, whatever its `collate_fn` makes of them.

A DataLoader's queue pickles what it hands over into a pipe of 64 KiB: two processes wake each other a hundred times for every
batch, and hand over some 800 MB/s of bytes on a small machine, if they do nothing else. So a worker's datasets give their
larger fields as `SharedBytes`: bytes like any other, but that multiprocessing's pickler writes them into a piece of shared memory
that the worker keeps and uses again, and only where they lie goes through the queue. The training loop gets plain bytes of its own.

The memory is a file without a name (memfd), which the loading process opens by the worker's entry in /proc. So nothing stays
behind however either ends, and a container's small /dev/shm is no limit. A number at its beginning says how many fields have been
taken out; only the loading process writes it, only the worker reads it, both by system calls, which keep the order. Where a
machine lacks any of this (memfd and /proc are Linux's), and where nobody takes anything out, bytes go through the queue as ever.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

LEAST_BYTES = 1 << 13  # of a field: smaller ones are pickled as fast
_PIECE_BYTES = 1 << 22  # a larger field has a piece to itself
_MOST_BYTES = 1 << 27  # of a worker's pieces together
_HEADER = mmap.PAGESIZE
_COUNT = struct.Struct("<Q")


class SharedBytes(bytes):
    """Bytes that cost little to send to another process of this machine, where they arrive as plain bytes."""


def shared(sample: Any) -> Any:
    """The sample that a worker gives: the same, its large fields (or itself, if it is large and bytes) as SharedBytes."""
    if not _is_ready():
        return sample
    if type(sample) is dict:
        for name, value in sample.items():
            if type(value) is bytes and len(value) >= LEAST_BYTES:
                sample[name] = SharedBytes(value)
    elif type(sample) is bytes and len(sample) >= LEAST_BYTES:
        return SharedBytes(sample)
    return sample


class _Piece:
    """Shared memory of a worker's that is filled from its beginning, and again when all that was in it has been taken out."""

    def __init__(self) -> None:
        # Numbers of processes and descriptors come again, and a mapping must not be mistaken for another.
        self.token = os.urandom(16)
        self.owner = os.getpid()
        self.descriptor = os.memfd_create("hand-over")
        self._given, self._end = 0, _HEADER
        self._memory = self._sized(_PIECE_BYTES)

    def __len__(self) -> int:
        return len(self._memory)

    def is_free(self) -> bool:
        """Whether all that was put in has been taken out."""
        (taken,) = _COUNT.unpack(os.pread(self.descriptor, _COUNT.size, 0))
        return bool(taken == self._given)

    def begin(self, size: int) -> None:
        """Fills it anew; it grows to `size`."""
        self._end = _HEADER
        if _HEADER + size > len(self._memory):
            self._memory.close()
            self._memory = self._sized(_HEADER + size)

    def put(self, data: bytes) -> int | None:
        """Where the data is now; None where it does not fit."""
        start, end = self._end, self._end + len(data)
        if end > len(self._memory):
            return None
        self._memory[start:end] = data
        self._end = end
        self._given += 1
        return start

    def _sized(self, size: int) -> mmap.mmap:
        os.ftruncate(self.descriptor, size)
        return mmap.mmap(self.descriptor, size)


class _Pieces:
    """A worker's."""

    def __init__(self) -> None:
        self._all: list[_Piece] = []
        self._current: _Piece | None = None
        self._lock = threading.Lock()  # each queue pickles in a thread of its own

    def put(self, data: bytes) -> tuple[_Piece, int] | None:
        """The piece that has the data now, and where; None where there is no room."""
        with self._lock:
            if self._current is not None and (start := self._current.put(data)) is not None:
                return self._current, start
            self._current = self._free(len(data))
            if self._current is None:
                return None
            self._current.begin(len(data))
            start = self._current.put(data)
            assert start is not None
            return self._current, start

    def _free(self, size: int) -> _Piece | None:
        room = _MOST_BYTES - sum(map(len, self._all))
        for piece in self._all:
            if _HEADER + size <= len(piece) + room and piece.is_free():
                return piece
        if max(_PIECE_BYTES, _HEADER + size) > room:
            return None
        self._all.append(_Piece())
        return self._all[-1]


def _reduce(data: SharedBytes) -> Any:
    put = _pieces.put(data)
    if put is None:
        return bytes, (bytes(memoryview(data)),)
    piece, start = put
    return _take, (piece.token, piece.owner, piece.descriptor, start, len(data))


@dataclass
class _Opened:
    """A worker's piece in the loading process."""

    path: str
    descriptor: int
    memory: mmap.mmap = field(repr=False)
    taken: int = 0  # fields, of which the worker knows when the next piece is turned to

    def tell(self) -> None:
        """Lets the worker know how many have been taken out."""
        os.pwrite(self.descriptor, _COUNT.pack(self.taken), 0)

    def close(self) -> None:
        self.memory.close()
        os.close(self.descriptor)


def _take(token: bytes, worker: int, descriptor: int, start: int, size: int) -> bytes:
    global _last
    with _lock:
        opened = _opened.get(token)
        if opened is None or len(opened.memory) < start + size:
            opened = _open(token, f"/proc/{worker}/fd/{descriptor}")
        if _last is not opened:  # a system call takes as long as copying 10 KB: one for a batch, not for each field
            if _last is not None:
                _last.tell()
            _last = opened
        opened.taken += 1
        return opened.memory[start : start + size]


def _open(token: bytes, path: str) -> _Opened:
    """Maps a piece, or maps it anew after it has grown, and lets go of those whose worker has ended."""
    global _last
    if not _opened:
        _keep_memory()
    taken = _opened[token].taken if token in _opened else 0
    for known, each in list(_opened.items()):
        if known == token or not Path(each.path).exists():
            _opened.pop(known).close()
            _last = None if _last is each else _last
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    opened = _opened[token] = _Opened(path, descriptor, mmap.mmap(descriptor, os.fstat(descriptor).st_size), taken)
    return opened


def _keep_memory() -> None:
    """Lets this process's C library keep what one batch leaves for the next, at most 64 MB, and not give it back to the kernel.

    Otherwise every batch gets its pages one by one, cleared, which costs twice what copying does. glibc sees by the
    largest block that it ever freed how much a program frees and takes again (mallopt(3), M_MMAP_THRESHOLD); this block is never
    written to, so it takes no memory. Other C libraries take no notice.
    """
    bytes(31 << 20)


@cache
def _is_ready() -> bool:
    """Makes a worker ready; False where there are no files in memory, or processes cannot open each other's."""
    with suppress(AttributeError, OSError):
        descriptor = os.memfd_create("hand-over")
        try:
            os.close(os.open(f"/proc/{os.getpid()}/fd/{descriptor}", os.O_RDWR))
            any(Path(f"/proc/{os.getppid()}/fd").iterdir())
        finally:
            os.close(descriptor)
        _keep_memory()
        return True
    return False


def _forget() -> None:
    """In a process that was forked: what its parent had is neither to be written to nor to be kept."""
    global _pieces, _lock, _last
    _pieces, _lock, _last = _Pieces(), threading.Lock(), None
    for each in _opened.values():
        each.close()
    _opened.clear()


_pieces = _Pieces()
_opened: dict[bytes, _Opened] = {}
_last: _Opened | None = None  # of those, which was taken from last
_lock = threading.Lock()  # a DataLoader that pins memory takes batches in a thread of its own
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
ForkingPickler.register(SharedBytes, _reduce)
