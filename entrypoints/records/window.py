"""A buffered window on a stream: large reads from it, exact pieces for the formats.

Formats need headers and payloads of known length. Reading them one by one costs a system call each; reading chunks into
new bytes objects costs a page fault for every 4 KiB, which is slower than copying. So the stream is read
into one buffer, which is reused, and pieces are copied out of it. Formats with many small records read `view` between
`position` and `end` directly, which saves a call per record. In a Pipe's broker the buffer is memory that other processes map, and
large fields are not copied but lent.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Protocol

from entrypoints.shared_memory import LEAST_BYTES, Field, Piece, Pieces

CHUNK = 1 << 20  # bytes: the largest pipe buffer without privileges, and small enough for the CPU's cache


class Source(Protocol):
    """The part of a stream that a window needs."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Read the bytes that are available and fit into the buffer; return how many, 0 only at the end."""
        ...


class Window:
    """The rest of a stream. `view[position:end]` has been read but not taken yet."""

    def __init__(self, stream: Source, before: int = 0, pieces: Pieces | None = None) -> None:
        self.view = memoryview(bytearray(CHUNK))
        self.position = 0
        self.end = 0
        self.before = before  # bytes of the stream before the view's
        self._stream, self._pieces = stream, pieces
        self._piece: Piece | None = None  # whose memory the view is
        self._held: Field | None = None  # keeps it from being filled by another
        self._is_lent = False  # a field of it

    @property
    def offset(self) -> int:
        """The number of bytes taken from the stream."""
        return self.before + self.position

    def extend(self, size: int = 1) -> bool:
        """Read more after the rest, so that a record that spans two chunks is in one piece; return False at the stream's end.

        Args:
            size: Bytes that the view must have room for from `position` on, if it can.
        """
        if (self.position and not self._is_lent) or max(self.end + 1, self.position + size) > len(self.view):
            self._turn(size)
        count = self._stream.readinto(self.view[self.end :])
        self.end += count
        return count > 0

    def _turn(self, size: int) -> None:
        """Move the rest to the front; of other memory if fields of this were lent, which others may still read."""
        rest, held = self.view[self.position : self.end], self._held
        if self._pieces is not None and (self._piece is None or self._is_lent or size > len(self.view)):
            size = max(CHUNK, size, len(rest) + 1)
            self._piece = self._pieces.free(size)
            self.view = self._piece.begin(size) if self._piece else memoryview(bytearray(CHUNK + len(rest)))
            held = self._piece.lend(0, 0) if self._piece else None
            self._is_lent = False
        self.view[: len(rest)] = rest
        self.before += self.position
        self.position, self.end, self._held = 0, len(rest), held

    def field(self, size: int, padding: int = 0) -> Any:
        """Take bytes as `take` does; a Field instead of bytes if they are many and other processes map the memory."""
        if self._pieces is None or size < LEAST_BYTES:
            return self.take(size, padding)
        while self.end - self.position < size + padding:
            if not self.extend(size + padding) or self._piece is None:
                return self.take(size, padding)
        lent = self._piece and self._piece.lend(self.position, size)
        if lent is None:
            return self.take(size, padding)
        self._is_lent = True
        self.position += size + padding
        return lent

    def peek(self, size: int) -> bytes:
        """Return the first `size` bytes of the stream without taking them, fewer if it is shorter. Only before the first take."""
        while self.end < size and (count := self._stream.readinto(self.view[self.end :])):
            self.end += count
        return bytes(self.view[: min(size, self.end)])

    def take(self, size: int, padding: int = 0) -> bytes:
        """Take the next `size` bytes and skip `padding` more; fewer at the stream's end, as `offset` then shows."""
        start = self.position
        end = start + size
        if end + padding <= self.end:
            self.position = end + padding
            return self.view[start:end].tobytes()  # faster than bytes()
        piece = self.view[start : min(end, self.end)]
        # A BytesIO grows and returns its bytes without copying them.
        whole = BytesIO()
        while True:
            size -= whole.write(piece)
            self.position += len(piece)
            if size == 0 or not self.extend():
                self.skip(padding)
                return whole.getvalue()
            piece = self.view[self.position : min(self.position + size, self.end)]

    def skip(self, size: int) -> int:
        """Skip `size` bytes; return how many there were."""
        missing = size
        while True:
            step = min(missing, self.end - self.position)
            self.position += step
            missing -= step
            if missing == 0 or not self.extend():
                return size - missing

    def scan(self, is_next: Callable[[], bool], size: int, step: int) -> None:
        """Skip bytes, `step` at a time, until `is_next()` with at least `size` bytes in the view, or to the stream's end."""
        while True:
            while self.end - self.position < size:
                if not self.extend():
                    self.position = self.end
                    return
            if is_next():
                return
            self.position += step

    def read(self, size: int = -1, /) -> bytes:
        """Take the bytes already read, up to `size`; empty only at the end (for gzip, which reads from a window)."""
        if self.position == self.end and not self.extend():
            return b""
        return self.take(min(size, self.end - self.position))
