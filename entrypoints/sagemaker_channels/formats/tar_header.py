"""The headers of a tar's members, of which Python's tarfile parses the unusual ones."""

from __future__ import annotations

import struct
import tarfile
import zlib
from functools import lru_cache

from sagemaker_channels.errors import corrupt, foreign

BLOCK = 512
MAGIC = slice(257, 263)
SPARSE = "a sparse file, which cannot be read from a stream: write it as a plain file"
_FIELDS = struct.Struct("100s24x12s12x8s356x")  # name, size, checksum
_USTAR = b"ustar\0"


def plain(block: bytes) -> tuple[int, str] | None:
    """Return size and name in the header of a plain file, as nearly all are; None for any other block."""
    if block[156] != 48 or block[345]:  # kind 0, and no prefix of the name
        return None
    name, size, checksum = _FIELDS.unpack(block)
    # Summing in Python costs by the byte; Adler-32 is in its lower half 1 + the sum, modulo 65,521.
    if zlib.adler32(block) & 0xFFFF != _adler(checksum) or (number := _octal(size)) < 0:
        return None
    return number, name.partition(b"\0")[0].decode("utf-8", "surrogateescape")


@lru_cache(1024)
def _adler(checksum: bytes) -> int:
    """Return the lower half of a header's Adler-32 according to its checksum field; -1 if that is not a number."""
    stored = _octal(checksum)
    return (1 + stored - 8 * 32 + sum(checksum)) % 65521 if stored >= 0 else -1


@lru_cache(1024)
def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else -1


def text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def parsed(block: bytes, key: str | None, offset: int) -> tuple[bytes, int, str]:
    """Return kind, size and name in any header. Raises CorruptError if the block is not one, or is damaged."""
    if (found := plain(block)) is not None:
        return b"0", *found
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        header = None
    if header is None or header.size < 0:
        raise foreign("a tar header", key, offset, "its checksum or a number in it is wrong")
    # tarfile finds a prefix in GNU's own layout, too, which has other fields there, and leaves out the slash of a directory.
    has_prefix = block[345] and block[MAGIC] == _USTAR
    name = header.name if has_prefix else text(block[:100])
    return block[156:157], header.size, name + "/" * (has_prefix and header.isdir())


def pax(data: bytes, key: str | None, offset: int) -> dict[bytes, str]:
    """Return `path` and `size` of an extended header, whose records are `<length> <name>=<value>` and a line feed.

    Raises CorruptError for a damaged record, or a sparse file.
    """
    records: dict[bytes, str] = {}
    position = 0
    while position < len(data):
        blank = data.find(b" ", position, position + 24)
        digits = data[position:blank] if blank > 0 else b""
        stop = position + int(digits) if digits.isdigit() else 0
        name, equals, value = data[blank + 1 : stop].partition(b"=")
        if stop > len(data) or not equals or not value.endswith(b"\n"):
            raise corrupt(key, offset, f"this extended header is damaged at its byte {position}")
        value = value[:-1]
        if name == b"size" and not (value.isdigit() and len(value) < 20):
            raise corrupt(key, offset, f"the size {value!r} is not a number")
        if name.startswith(b"GNU.sparse."):
            raise corrupt(key, offset, SPARSE)
        if name in (b"path", b"size"):
            records[name] = value.decode("utf-8", "surrogateescape")
        position = stop
    return records
