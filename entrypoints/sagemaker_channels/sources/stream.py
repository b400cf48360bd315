"""An object that is being prefetched, as a stream for the record formats (see prefetch.py)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from sagemaker_channels.sources.schedule import Slot

if TYPE_CHECKING:
    from sagemaker_channels.sources.prefetch import ReadAhead

_NEAR_BYTES = 8 << 20  # A seek at most so far ahead reads the bytes between: they have been requested already.


class ReadStream:
    """A ByteStream with `seek`, which zip and Parquet need.

    A seek before the first read costs nothing; one far back or ahead drops what was fetched. It is not an io.RawIOBase, which
    calls `close` in its finalizer: Python drops exceptions there, also that of Ctrl-C.
    """

    def __init__(self, key: str, pipeline: ReadAhead, slot: Slot) -> None:
        self.key = key
        self.closed = False
        self._pipeline = pipeline
        self._slot = slot
        self._rest = memoryview(b"")  # the unread part of the piece that is being read
        self._place = 0
        self._begun = False

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        return self._take(size).tobytes()

    def readall(self) -> bytes:
        """Return all remaining bytes: one piece without a copy, more joined one by one, to hold none of them twice."""
        whole = self._rest.tobytes() if self._rest else self._next_piece()
        self._rest = memoryview(b"")
        if whole and (piece := self._next_piece()):
            self._slot.joined = True
            # All memory at once, if the size is known: memory that grows is copied now and then.
            joined = io.BytesIO(bytes((self._slot.end or self._place) - self._place))
            joined.write(whole)
            del whole
            while piece:
                joined.write(piece)
                piece = self._next_piece()
            joined.truncate()
            whole = joined.getvalue()  # shares the buffer's memory
        self._place += len(whole)
        return whole

    def _next_piece(self) -> bytes:
        self._begun = True
        return b"" if self.closed else self._pipeline.next_piece(self._slot) or b""

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        piece = self._take(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_CUR:
            offset += self._place
        elif whence == io.SEEK_END:
            offset += self._pipeline.size(self._slot)
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        ahead = offset - self._place
        if 0 <= ahead <= len(self._rest):
            self._rest = self._rest[ahead:]
        elif 0 < ahead <= _NEAR_BYTES and self._begun:
            while self._place < offset and self._take(offset - self._place):
                pass
        else:
            self._rest = memoryview(b"")
            self._pipeline.seek(self._slot, offset)
        self._place = offset
        return offset

    def close(self) -> None:
        """Close the stream, at any position; later reads return nothing."""
        if not self.closed:
            self.closed = True
            self._rest = memoryview(b"")
            self._pipeline.tidy()

    def _take(self, size: int) -> memoryview:
        """Return at most `size` bytes, of one piece; none at the end."""
        if not self._rest:
            self._rest = memoryview(self._next_piece())
        piece, self._rest = self._rest[:size], self._rest[size:]
        self._place += len(piece)
        return piece
