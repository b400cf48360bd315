"""An object that is being prefetched, as a stream for the record formats (see prefetch.py)."""

from __future__ import annotations

import ctypes
import io
import mmap
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

# What is under way follows the store's delay, the time of its quickest answer: so many requests and bytes for each second of it,
# two to three times what a process can read. With more, it waits for its own processor; with fewer, for the late answers.
_REQUESTS, _FEWEST_REQUESTS = 10_000, 8
_BYTES = 2e9
_HUGE_BYTES = 4 << 20  # from which the kernel's larger pages are used
_NEAR_BYTES = 8 << 20  # A seek at most so far ahead reads the bytes between: they have been requested already.


class Fetchable(Protocol):
    """An object that can be fetched, whole or in pieces. One that keeps something open closes it when it is collected."""

    key: str  # the object's name in the channel
    ranges: bool  # whether several ranges may be fetched at the same time

    @property
    def size(self) -> int | None:
        """The bytes; None if they are known only at its end, which an object with ranges never is."""

    def fetch(self, start: int, count: int, /) -> bytes:
        """Fetch `count` bytes from `start`, in any thread. Fewer mean the end of an object of unknown size."""

    def length(self) -> int:
        """Return the size, with a request if it is not known."""


class Pipeline(Protocol):
    """What fetches the pieces of streams: Prefetch."""

    def next_piece(self, stream: ReadStream, /) -> bytes: ...
    def seek(self, stream: ReadStream, place: int, /) -> None: ...
    def tidy(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    held_bytes: int = 64 << 20  # requested or fetched, and not read yet; exceeded by two pieces at most
    far_bytes: int = 0  # the same if the store is so far that more must be under way
    piece_bytes: int = 8 << 20  # of one request
    whole_bytes: int = 0  # Objects up to this size are fetched by one request.
    objects: int = 512  # that are known and not read yet
    threads: int = 64  # requests at the same time

    def most_requests(self, delay: float) -> int:
        """Return how many requests may be under way to a store that takes so many seconds; 0 if that is unknown."""
        return min(self.threads, max(_FEWEST_REQUESTS, int(delay * _REQUESTS))) if delay else self.threads

    def most_bytes(self, delay: float) -> int:
        return max(self.held_bytes, min(int(delay * _BYTES), self.far_bytes))

    def next_size(self, stream: ReadStream) -> int:
        if stream.end is None:
            return self.piece_bytes
        is_whole = stream.issued == 0 and stream.end <= self.whole_bytes
        return stream.end if is_whole else min(self.piece_bytes, stream.end - stream.issued)


@dataclass(slots=True, eq=False)
class Piece:
    """Bytes of an object from `start` on, requested once, or more often if they are late."""

    stream: ReadStream
    start: int
    size: int  # bytes that count against the limit
    begun: float  # when it was requested last, as time.monotonic() counts
    tries: int = 1
    busy: int = 1  # requests under way
    answer: bytes | Exception | None = None
    dropped: bool = False  # The reader has sought elsewhere or closed the stream.


class ReadStream:
    """A ByteStream with `seek`, which zip and Parquet need.

    A seek before the first read costs nothing; one far back or ahead drops what was fetched. It is not an io.RawIOBase, which
    calls `close` in its finalizer: Python drops exceptions there, also that of Ctrl-C.
    """

    def __init__(self, source: Fetchable, pipeline: Pipeline) -> None:
        self.key, self.closed = source.key, False
        self._pipeline, self._begun = pipeline, False
        self._rest = memoryview(b"")  # the unread part of the piece that is being read
        # Of the pipeline, guarded by its lock.
        self.source = source
        self.end = source.size  # once it is known
        self.pieces: deque[Piece] = deque()  # requested and not taken yet, in order
        self.place = self.issued = 0  # the bytes where they begin and end
        self.busy = 0  # requests under way
        self.window: int | None = None  # limit of the bytes requested, after a seek, because more seeks may follow
        self.failed = False  # Nothing after the failure is requested.
        self.dropped = False  # The pipeline has ended it.

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place - len(self._rest)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        return self.lend(size).tobytes()

    def readall(self) -> bytes:
        """Return all remaining bytes: one piece without a copy, more joined one by one, to hold none of them twice."""
        begin = self.tell()
        whole = self._rest.tobytes() if self._rest else self._next_piece()
        self._rest = memoryview(b"")
        if whole and (piece := self._next_piece()):
            # All memory at once, if the size is known: memory that grows is copied now and then.
            joined = io.BytesIO(bytes((self.end or begin) - begin))
            _use_huge_pages(joined)
            joined.write(whole)
            del whole
            while piece:
                joined.write(piece)
                piece = self._next_piece()
            joined.truncate()
            whole = joined.getvalue()  # shares the buffer's memory
        return whole

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        piece = self.lend(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_CUR:
            offset += self.tell()
        elif whence == io.SEEK_END:
            offset += self.source.length() if self.end is None else self.end
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        ahead = offset - self.tell()
        if 0 <= ahead <= len(self._rest):
            self._rest = self._rest[ahead:]
            return offset
        if 0 < ahead <= _NEAR_BYTES and self._begun:
            while self.tell() < offset and self.lend(offset - self.tell()):
                pass
        if self.tell() != offset:
            self._rest = memoryview(b"")
            self._pipeline.seek(self, offset)
        return offset

    def close(self) -> None:
        """Close the stream, at any position; later reads return nothing."""
        if not self.closed:
            self.closed = True
            self._rest = memoryview(b"")
            self._pipeline.tidy()

    def _next_piece(self) -> bytes:
        self._begun = True
        return b"" if self.closed else self._pipeline.next_piece(self)

    def lend(self, size: int, /) -> memoryview:
        """Return at most `size` bytes, of one piece; none at the end."""
        if not self._rest:
            self._rest = memoryview(self._next_piece())
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


def _use_huge_pages(memory: io.BytesIO) -> None:
    """Let Linux clear large memory 2 MiB at a time, as numpy does for arrays: by 4 KiB it takes twice as long as filling it."""
    with memory.getbuffer() as view:
        if sys.platform == "linux" and len(view) >= _HUGE_BYTES:
            begin = ctypes.addressof(ctypes.c_char.from_buffer(view))
            skipped = -begin % mmap.PAGESIZE  # A kernel without such pages refuses, which changes nothing.
            size = ctypes.c_size_t(len(view) - skipped)
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin + skipped), size, mmap.MADV_HUGEPAGE)
