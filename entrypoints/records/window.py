"""A stream seen through a window: big reads below, exact pieces above, one buffer for the whole stream.

Formats take headers and payloads of known length. Reading them one by one costs a system call each; reading chunks into
fresh bytes objects costs a page fault for every 4 KiB, which is more than the copying itself. So the stream is read
into one buffer that stays, and pieces are copied out of it. Formats with many small records look into `view` between
`position` and `end` themselves and so save a call per record.
"""

from __future__ import annotations

from io import BytesIO
from typing import Protocol

CHUNK = 1 << 20  # bytes: what a pipe holds at most without privileges, and little enough to stay in the cache


class Source(Protocol):
    """The part of a stream that a window needs."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Puts bytes into the buffer, as many as are at hand and fit; how many, 0 at the end only."""
        ...


class Window:
    """What is left of a stream. `view[position:end]` has been read from it and not been taken yet."""

    def __init__(self, stream: Source, before: int = 0) -> None:
        self.view = memoryview(bytearray(CHUNK))
        self.position = 0
        self.end = 0
        self.before = before  # bytes of the stream before the view's
        self._stream = stream

    @property
    def offset(self) -> int:
        """How many bytes of the stream have been taken."""
        return self.before + self.position

    def refill(self) -> bool:
        """Reads the next chunk over this one, which must be used up; False at the stream's end."""
        self.before += self.end
        self.position = 0
        self.end = self._stream.readinto(self.view)
        return self.end > 0

    def extend(self) -> None:
        """Moves what is left to the front and reads more behind it, so that what spans two chunks lies in one piece."""
        rest = self.end - self.position
        self.view[:rest] = self.view[self.position : self.end]
        self.before += self.position
        self.position = 0
        self.end = rest + self._stream.readinto(self.view[rest:])

    def peek(self, size: int) -> bytes:
        """The first `size` bytes of the stream, which stay; fewer where it is shorter. Before anything is taken only."""
        while self.end < size and (count := self._stream.readinto(self.view[self.end :])):
            self.end += count
        return bytes(self.view[: min(size, self.end)])

    def take(self, size: int, padding: int = 0) -> bytes:
        """The next `size` bytes, and passes over `padding` more; fewer at the stream's end, as `offset` then shows."""
        start = self.position
        end = start + size
        if end + padding <= self.end:
            self.position = end + padding
            return self.view[start:end].tobytes()  # which is faster than bytes()
        piece = self.view[start : min(end, self.end)]
        # A BytesIO grows without copying what it has and hands its bytes over as they are.
        whole = BytesIO()
        while True:
            size -= whole.write(piece)
            self.position += len(piece)
            if size == 0 or not self.refill():
                self.skip(padding)
                return whole.getvalue()
            piece = self.view[: min(size, self.end)]

    def skip(self, size: int) -> int:
        """Passes over `size` bytes without keeping them; how many there were."""
        missing = size
        while True:
            step = min(missing, self.end - self.position)
            self.position += step
            missing -= step
            if missing == 0 or not self.refill():
                return size - missing

    def read(self, size: int = -1, /) -> bytes:
        """What is at hand, up to `size` bytes, empty at the end only (for gzip, which reads from a window)."""
        if self.position == self.end and not self.refill():
            return b""
        return self.take(min(size, self.end - self.position))
