"""The content of a gzip stream, as a stream, for formats that may be compressed.

gzip's own file object reads 8 KiB at a time through several layers of Python; here zlib gets larger pieces. A gzip
stream has one or more members (joined objects, parallel compressors), perhaps followed by zeros; a record may span
members. zlib checks each member's CRC and length.

A stream that begins as gzip does is gzip, whatever its name: uncompressed data of the formats that may be compressed never does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from io import BytesIO

from sagemaker_channels.errors import corrupt
from sagemaker_channels.formats import signatures
from sagemaker_channels.formats.window import CHUNK
from sagemaker_channels.sample import ByteStream

MAGIC = b"\x1f\x8b\x08"  # the third byte is the method, of which there is one
_WITH_HEADER = 16 + zlib.MAX_WBITS
_PIECE = 1 << 16  # bytes for zlib: those after a member are copied, once for each member


def _contents(stream: ByteStream, key: str | None) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a stream. Damaged or cut data is a CorruptError, which names the compressed byte."""
    offset, member, inside = 0, zlib.decompressobj(_WITH_HEADER), False
    rest = b""  # read and not used yet
    while True:
        data = rest or stream.read(_PIECE)
        offset += 0 if rest else len(data)
        if not inside:
            if not data:
                return
            data = rest = data.lstrip(b"\0")
            if not data:
                continue
        try:
            content = member.decompress(data, CHUNK)
            if not data and not content:
                raise zlib.error("it ends inside a member")
        except zlib.error as error:
            raise corrupt(key, offset, f"the gzip stream is damaged or cut: {error}") from None
        inside, rest = not member.eof, member.unconsumed_tail
        if member.eof:
            rest, member = member.unused_data, zlib.decompressobj(_WITH_HEADER)
        if content:
            yield content


class Gunzip:
    """The uncompressed bytes of a stream, as a stream."""

    def __init__(self, stream: ByteStream, key: str | None) -> None:
        self._contents, self._rest = _contents(stream, key), b""

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join([self._rest, *self._contents])
        piece = self._rest or next(self._contents, b"")
        self._rest = piece[size:]
        return piece[:size]

    def readinto(self, buffer: memoryview, /) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Do nothing: the caller closes the stream below."""


class Begun:
    """A stream that returns its first bytes again after a look at them; `least` bytes are waited for."""

    def __init__(self, stream: ByteStream, least: int) -> None:
        self._stream = stream
        head = b""
        while len(head) < least and (piece := stream.read(_PIECE)):
            head += piece
        self._head = rest = BytesIO(head)
        self.head = head[: signatures.SIZE]
        self.is_gzip = head.startswith(MAGIC)
        if hasattr(stream, "lend"):
            self.lend = lambda size: memoryview(rest.read(size)) or stream.lend(size)

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return self._head.read() + self._stream.read()
        return self._head.read(size) or self._stream.read(size)

    def readinto(self, buffer: memoryview, /) -> int:
        return self._head.readinto(buffer) or self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
