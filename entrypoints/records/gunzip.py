"""The content of a gzip stream, as a stream: for formats that may come compressed.

gzip's own file object takes 8 KiB at a time, through several layers of Python; here zlib is given bigger pieces. A gzip
stream has one or more members (joined objects, parallel compressors), perhaps with zeros behind; what is in one may go
on in the next. zlib checks each member's CRC and length.
"""

from __future__ import annotations

import zlib

from entrypoints.errors import CorruptError
from entrypoints.records.window import Source, Window

MAGIC = b"\x1f\x8b\x08"  # the third byte is the method, of which there is one
_WITH_HEADER = 16 + zlib.MAX_WBITS
_PIECE = 1 << 16  # bytes given to zlib: what follows a member in them is copied, once for each member


class Gunzip(Source):
    """The uncompressed bytes of what a window shows; CorruptError, naming the compressed byte, for what is cut or damaged."""

    def __init__(self, window: Window, key: str | None) -> None:
        self._window = window
        self._key = key
        self._member = zlib.decompressobj(_WITH_HEADER)
        self._rest = b""  # compressed bytes that have been taken from the window and not been used
        self._inside = False  # of a member, whose end is still to come

    def readinto(self, buffer: memoryview, /) -> int:
        while True:
            data = self._rest or self._window.read(_PIECE)
            if not self._inside:
                at_end = not data
                data = data.lstrip(b"\0")
                if at_end:
                    return 0
                if not data:
                    self._rest = b""
                    continue
            try:
                content = self._member.decompress(data, len(buffer))
                if not data and not content:
                    raise zlib.error("it ends inside of a member")
            except zlib.error as error:
                place = f"object {self._key!r}, " if self._key is not None else ""
                raise CorruptError(
                    f"{place}byte {self._window.offset}: the gzip stream is damaged or cut: {error}"
                ) from error
            self._inside = not self._member.eof
            self._rest = self._member.unconsumed_tail
            if self._member.eof:
                self._rest = self._member.unused_data
                self._member = zlib.decompressobj(_WITH_HEADER)
            if content:
                buffer[: len(content)] = content
                return len(content)
