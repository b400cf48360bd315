"""An object as a seekable file, for zip and Parquet, whose table of contents is at the end.

Files and objects of S3 can seek. A Pipe cannot, so these formats are refused there before anything is read.

A prefetching stream has read most of a small object before the format first seeks to the end, and would fetch it
again. So a small object is read in one go, unless the format needs only parts of it.
"""

from __future__ import annotations

import io
from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.cursor import is_seekable
from sagemaker_channels.sample import ByteStream

_IN_MEMORY = 32 << 20  # bytes: the largest object to read in one go


class SeekableFile(io.RawIOBase):
    """The `size` bytes of a stream; `read` returns as many as asked for, fewer only at the end. The caller closes the stream."""

    def __init__(self, stream: ByteStream, key: str | None, *, at_once: bool = True) -> None:
        source: Any = stream
        if not is_seekable(source):
            raise ChannelError("its format is read from the end, and this stream cannot seek", object=key)
        source.seek(0, io.SEEK_END)
        self.size: int = source.tell()  # Seeking to the end has fetched nothing yet.
        source.seek(0)
        if at_once and self.size <= _IN_MEMORY and not isinstance(source, (io.FileIO, io.BytesIO)):
            source = io.BytesIO(b"".join(iter(lambda: stream.read(4 << 20), b"")))
        self._source = source
        self.key, self._place = key, 0

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
