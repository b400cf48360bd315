"""Batches of bytes from a DataLoader's workers at the speed of memory: `DataLoader(..., num_workers=2, collate_fn=HandOver())`.

A DataLoader's queue pickles what it hands over into a pipe of 64 KiB: two processes wake each other a hundred times for every
batch, and hand over some 800 MB/s of bytes on a small machine, if they do nothing else. Tensors go through shared memory,
but each through a new piece of it, whose pages the kernel clears, and which is mapped twice. Here each worker writes a batch's
bytes into a piece of shared memory that it keeps and uses again, and the queue carries only where they lie. What the loop
gets is what `collate_fn=list` gives: a list of samples with bytes of their own.

The memory is a file without a name (memfd), which the loading process opens by the worker's entry in /proc. So nothing stays
behind however either ends, and a container's small /dev/shm is no limit. A byte at its beginning says whether a batch is still
to be taken out; only the worker sets it, only the loading process clears it, both by system calls, which keep the order. Where a
machine lacks any of this (memfd and /proc are Linux's), batches go through the queue as ever.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoints.sample import Sample

_HEADER = mmap.PAGESIZE
_FREE, _FULL = b"\0", b"\1"
_MOST_PIECES = 16  # of a worker: DataLoader asks for two batches ahead, and what nobody takes out stays full
_LEAST_BYTES = 1 << 16  # of a batch: smaller ones fit through the queue's pipe at once

# A sample's fields in order: name, how many bytes of the piece, or -1 and the value itself.
_Fields = list[tuple[str, int, Any]]


class HandOver:
    """A `collate_fn` that gives a list of samples, as `list` does, and hands their bytes over through shared memory.

    Samples are as readers or a transform give them: dicts, of whose values the `bytes` are handed over so, and all else by the
    queue. Samples that are no dicts go through the queue.
    """

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []  # of the worker that this is a copy in
        self._possible = _is_possible()

    def __call__(self, samples: Sequence[Sample]) -> Any:
        """The list itself in the loading process; in a worker what turns into it there."""
        from torch.utils.data import get_worker_info

        if get_worker_info() is None or not self._possible or not all(type(sample) is dict for sample in samples):
            return list(samples)
        shape: list[_Fields] = [
            [(name, len(value), None) if type(value) is bytes else (name, -1, value) for name, value in sample.items()]
            for sample in samples
        ]
        total = sum(size for fields in shape for _, size, _ in fields if size > 0)
        piece = self._free_piece() if total >= _LEAST_BYTES else None
        if piece is None:
            return list(samples)
        piece.fill(samples, _HEADER + total)
        return _Handed(piece.token, piece.descriptor, _HEADER + total, shape)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pieces": []}

    def _free_piece(self) -> _Piece | None:
        for piece in self._pieces:
            if os.pread(piece.descriptor, 1, 0) == _FREE:
                return piece
        if len(self._pieces) == _MOST_PIECES:
            return None
        self._pieces.append(_Piece())
        return self._pieces[-1]


class _Piece:
    """Shared memory of a worker's, for one batch at a time; it grows to the largest."""

    def __init__(self) -> None:
        self.token = os.urandom(
            16
        )  # numbers of processes and descriptors come again, and a mapping must not be mistaken
        self.descriptor = os.memfd_create("batch")
        os.ftruncate(self.descriptor, _HEADER)
        self._memory = mmap.mmap(self.descriptor, _HEADER)

    def fill(self, samples: Sequence[Sample], size: int) -> None:
        if size > len(self._memory):
            self._memory.close()
            os.ftruncate(self.descriptor, size + size // 4)
            self._memory = mmap.mmap(self.descriptor, size + size // 4)
        at = _HEADER
        for sample in samples:
            for value in sample.values():
                if type(value) is bytes:
                    self._memory[at : at + len(value)] = value
                    at += len(value)
        os.pwrite(self.descriptor, _FULL, 0)


@dataclass(frozen=True)
class _Handed:
    """A batch on its way through the queue; where it is unpickled, it is a list of samples."""

    token: bytes
    descriptor: int
    size: int  # bytes of the piece, from its beginning
    shape: list[_Fields]

    def __reduce__(self) -> Any:
        return _take, (self.token, os.getpid(), self.descriptor, self.size, self.shape)


@dataclass
class _Opened:
    """A worker's piece in the loading process."""

    path: str
    descriptor: int
    memory: mmap.mmap = field(repr=False)

    def close(self) -> None:
        self.memory.close()
        os.close(self.descriptor)


_opened: dict[bytes, _Opened] = {}
_lock = threading.Lock()  # a DataLoader that pins memory takes batches in a thread of its own


def _take(token: bytes, worker: int, descriptor: int, size: int, shape: list[_Fields]) -> list[Sample]:
    opened = _opened.get(token)
    if opened is None or len(opened.memory) < size:
        opened = _open(token, f"/proc/{worker}/fd/{descriptor}")
    memory = opened.memory
    at = _HEADER
    samples: list[Sample] = []
    for fields in shape:
        sample: Sample = {}
        for name, length, value in fields:
            if length < 0:
                sample[name] = value
            else:
                sample[name] = memory[at : at + length]
                at += length
        samples.append(sample)
    os.pwrite(opened.descriptor, _FREE, 0)
    return samples


def _open(token: bytes, path: str) -> _Opened:
    """Maps a piece, or maps it anew after it has grown, and lets go of those whose worker has ended."""
    with _lock:
        if not _opened:
            _keep_memory()
        for known, each in list(_opened.items()):
            if known == token or not Path(each.path).exists():
                _opened.pop(known).close()
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        opened = _opened[token] = _Opened(path, descriptor, mmap.mmap(descriptor, os.fstat(descriptor).st_size))
        return opened


def _keep_memory() -> None:
    """Lets the C library keep what one batch leaves for the next, at most 64 MB, instead of giving it back to the kernel.

    Otherwise every batch gets its pages one by one, cleared, which costs twice what copying does. glibc sees by the
    largest block that it ever freed how much a program frees and takes again (mallopt(3), M_MMAP_THRESHOLD); this block is never
    written to, so it takes no memory. Other C libraries take no notice.
    """
    bytes(31 << 20)


def _is_possible() -> bool:
    with suppress(AttributeError, OSError):
        descriptor = os.memfd_create("batch")
        try:
            os.close(os.open(f"/proc/{os.getpid()}/fd/{descriptor}", os.O_RDWR))
        finally:
            os.close(descriptor)
        return True
    return False
