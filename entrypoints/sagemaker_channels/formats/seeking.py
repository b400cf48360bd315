"""An object as a seekable file, for zip and Parquet, whose table of contents is at the end.

Files and the connector's streams are seekable. Any other stream of one whole object is first copied to a temporary file.
A Pipe joins objects, so these formats have no boundaries there and are refused before anything is read.

A prefetching stream has read most of a small object before the format first seeks to the end, and would fetch it
again. So a small object is read in one go, unless the format needs only parts of it.
"""

from __future__ import annotations

import io
import tempfile
from typing import Any

from sagemaker_channels.errors import ChannelError, no_room
from sagemaker_channels.sample import ByteStream

_IN_MEMORY = 32 << 20  # bytes: the largest object to hold in memory


class SeekableFile(io.RawIOBase):
    """The `size` bytes of a stream; `read` returns as many as asked for, fewer only at the end.

    Closing removes the copy, if there is one; the caller closes the stream.
    """

    def __init__(self, stream: ByteStream, key: str | None, *, at_once: bool = True) -> None:
        source: Any = stream
        self._copy: Any = None
        if not (hasattr(source, "seekable") and source.seekable()):
            source = self._copy = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed with this object
            _copy(stream, source)
        try:
            source.seek(0, io.SEEK_END)
        except io.UnsupportedOperation as error:
            place = f"object {key!r}" if key is not None else "this object"
            raise ChannelError(f"{place} cannot be read from its end, which its format needs: {error}") from error
        self.size: int = source.tell()  # Seeking to the end has fetched nothing yet.
        small = at_once and self._copy is None and self.size <= _IN_MEMORY
        source.seek(0)
        if small and not isinstance(source, (io.FileIO, io.BytesIO)):
            source = io.BytesIO(b"".join(iter(lambda: stream.read(4 << 20), b"")))
        self._source = source
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Seek, with the meaning of `io`; this fetches nothing."""
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        self._source.seek(self._place)
        return self._place

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer, except at the object's end."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next `size` bytes, fewer only at the object's end."""
        left = self.size - self._place
        wanted = left if size is None or size < 0 else min(size, left)
        pieces = []
        while wanted > 0 and (piece := self._source.read(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
            self._place += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        super().close()


def _copy(source: Any, copy: Any) -> None:
    while piece := source.read(1 << 20):
        try:
            copy.write(piece)
        except OSError as error:
            raise no_room("a copy of an object that cannot seek", tempfile.gettempdir(), error.strerror) from error
