"""Headers of tar members: ustar, GNU and old layouts, and pax records. `tar.py` reads whole archives with them."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

from sagemaker_channels.errors import corrupt

_FIELDS = struct.Struct("100s24x12s12x8ss355x")  # name, size, checksum, kind
_MAGIC, _PREFIX = slice(257, 263), slice(345, 500)  # the prefix is that of the name
_USTAR = b"ustar\x00"
_MODULO = 65521  # Adler-32's
TIME = b"%d mtime="  # how a pax record with the time begins, in an extended header of so many bytes
_WANTED = {b"path", b"size"}
_MAX_DIGITS = 20  # of a size and its line feed: int() has a limit
SPARSE = "a sparse file, which cannot be read from a stream: write it as a plain file"


def parse(block: bytes, key: str | None, offset: int) -> tuple[bytes, int, str]:
    """Return kind, size and name in a header of 512 bytes, not all zeros.

    Raises:
        CorruptError: The block is not a header, or a damaged one.
    """
    name, size, checksum, kind = _FIELDS.unpack(block)
    # Summing in Python costs by the byte; Adler-32 is in its lower half 1 + the sum, modulo 65,521.
    if zlib.adler32(block) & 0xFFFF != _adler(checksum) and not _is_signed_sum(block, checksum):
        raise corrupt(key, offset, "not a tar header, or a damaged one: its checksum is wrong")
    path = name.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    if block[345] and block[_MAGIC] == _USTAR:  # GNU's own layout has other fields instead of the prefix
        path = f"{text(block[_PREFIX])}/{path}"
    try:
        return kind, _number(size), path
    except ValueError:
        raise corrupt(key, offset, f"the size {size!r} is not an octal number") from None


def is_header(block: bytes) -> bool:
    """Return whether a block of 512 bytes is the header of a member, as every writer since POSIX.1-1988 makes it."""
    return block[257:262] == _USTAR[:5] and zlib.adler32(block) & 0xFFFF == _adler(block[148:156])


@lru_cache(1024)
def _adler(checksum: bytes) -> int:
    """Return the lower half of a header's Adler-32 according to its checksum field; -1 if that is not a number."""
    try:
        stored = int(checksum.strip(b" \0") or b"-1", 8)
    except ValueError:
        return -1
    return (1 + stored - 8 * 32 + sum(checksum)) % _MODULO if stored >= 0 else -1


def _is_signed_sum(block: bytes, checksum: bytes) -> bool:
    """Return whether the checksum is a sum of signed bytes, as some old writers computed it."""
    high = sum(byte > 127 for byte in block[:148] + block[156:])
    return (zlib.adler32(block) - 256 * high) & 0xFFFF == _adler(checksum)


@lru_cache(1024)
def _number(field: bytes) -> int:
    """Return a size: octal digits, or binary if the first bit is set (GNU, for 8 GiB and more). Raises ValueError otherwise."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & (1 << (8 * len(field) - 1)) - 1
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise ValueError
    return int(digits or b"0", 8)


def text(field: bytes) -> str:
    """Decode a field, which ends at its first zero byte, if it has one."""
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def pax(data: bytes, key: str | None, offset: int) -> dict[str, str]:
    r"""Return `path` and `size` of an extended header, whose records are `<length> <name>=<value>\n`.

    Raises:
        CorruptError: A record is damaged, or describes a sparse file.
    """
    records: dict[str, str] = {}
    size = len(data)
    if data.startswith(TIME % size) and data.endswith(b"\n"):
        return records  # one record, the time: as nearly all of them
    position = 0
    while position < size:
        blank = data.find(b" ", position, position + 24)
        digits = data[position:blank] if blank > 0 else b""
        stop = position + int(digits) if digits.isdigit() else 0
        name, equals, value = data[blank + 1 : stop].partition(b"=")
        if stop > size or not equals or not value.endswith(b"\n"):
            raise corrupt(key, offset, f"this extended header is damaged at its byte {position}")
        if name in _WANTED:
            if name == b"size" and not (value[:-1].isdigit() and len(value) <= _MAX_DIGITS):
                raise corrupt(key, offset, f"the size {value[:-1]!r} is not a number")
            records[name.decode()] = value[:-1].decode("utf-8", "surrogateescape")
        elif name.startswith(b"GNU.sparse."):
            raise corrupt(key, offset, SPARSE)
        position = stop
    return records
