"""An object as a file in which one can go anywhere: for zip and Parquet, whose table of contents stands at the end.

Files and the connector's streams can be sought. What cannot, though it is one whole object, is copied to a temporary file
first. A Pipe joins objects, so these formats have no boundaries there and are refused before anything is read.

A stream that is read ahead from its beginning has most of a small object at hand when the format first goes to the end, and
would fetch it again. So a small object is read in one go, unless only parts of it are wanted.
"""

from __future__ import annotations

import io
import tempfile
from typing import Any, cast

from entrypoints.errors import ChannelError, no_room
from entrypoints.sample import ByteStream

_IN_MEMORY = 32 << 20  # bytes of an object that is held whole


class SeekableFile(io.RawIOBase):
    """A stream's bytes, `size` of them; `read` gives as many as are asked for, where the object has them.

    Closing gives back the copy, if there is one; the stream is the caller's.
    """

    def __init__(self, stream: ByteStream, key: str | None, *, at_once: bool = True) -> None:
        source: Any = stream
        self._copy: Any = None
        try:
            if not (hasattr(source, "seekable") and source.seekable()):
                self._copy = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed with this object
                _copy(source, self._copy)
                source = self._copy
            source.seek(0, io.SEEK_END)
            self.size: int = source.tell()
            # Going to the end has fetched nothing yet, of a file as of a stream that is read ahead.
            small = at_once and self._copy is None and self.size <= _IN_MEMORY
            if small and not isinstance(source, (io.FileIO, io.BytesIO)):
                source.seek(0)
                self._copy = source = io.BytesIO(_all_of(source))
        except io.UnsupportedOperation as error:
            place = f"object {key!r}" if key is not None else "this object"
            raise ChannelError(f"{place} cannot be read from its end, which its format needs: {error}") from error
        except BaseException:
            self.close()
            raise
        source.seek(0)
        # Whether going to a place costs no request.
        self.is_near = self._copy is not None or isinstance(source, (io.FileIO, io.BytesIO))
        self._source = source
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Goes to a place by io's rules; nothing is fetched."""
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        if target != self._place:
            self._source.seek(target)
            self._place = target
        return target

    def readinto(self, buffer: Any, /) -> int:
        """Fills the buffer, but for the object's end."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and (count := self._readinto(view[done:])):
            done += count
        self._place += done
        return done

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes; fewer at the object's end only."""
        left = max(0, self.size - self._place)
        wanted = left if size is None or size < 0 else min(size, left)
        pieces = []
        while wanted and (piece := self._source.read(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
            self._place += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Removes the copy, if there is one."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        super().close()

    def _readinto(self, view: memoryview) -> int:
        if self._copy is not None and not hasattr(self._copy, "readinto"):  # before Python 3.11
            data = self._copy.read(len(view))
            view[: len(data)] = data
            return len(data)
        return cast(int, self._source.readinto(view))


def _copy(source: Any, copy: Any) -> None:
    while piece := source.read(1 << 20):
        try:
            copy.write(piece)
        except OSError as error:
            raise no_room("a copy of an object that cannot be sought", tempfile.gettempdir(), error.strerror) from error


def _all_of(source: Any) -> bytes:
    whole = io.BytesIO()
    while piece := source.read(1 << 22):
        whole.write(piece)
    return whole.getvalue()
