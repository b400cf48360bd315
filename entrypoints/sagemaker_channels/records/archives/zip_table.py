"""The table of contents at the end of a zip: found, checked and read entry by entry.

The table is kept as it is written, some 80 bytes a member, and an entry is decoded when its member is read. Archives of
4 GiB and more have a second end record (zip64). Bytes before the first member are allowed, as in self-extracting archives,
but not another archive: a part of joined or cut archives would look like the whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sagemaker_channels.errors import CorruptError, corrupt
from sagemaker_channels.records import signatures
from sagemaker_channels.records.seeking import SeekableFile

_END = struct.Struct("<4s4H2IH")  # signature, disks, entries, size and place of the table, length of the comment
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LENGTHS = struct.Struct("<3H")  # of an entry, from byte 28 on: name, extra fields, comment
_MAX_COMMENT = 0xFFFF
_UTF8 = 0x800  # flag: the name is UTF-8
_UNIX, _DARWIN = 3, 19
_LINK = 0o120000
IN_EXTRA = 0xFFFFFFFF  # a value that is in the extra fields, for zip64


class Entry(NamedTuple):
    """The table's entry of one member."""

    name: str
    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int  # of its header in the object
    is_link: bool


class Table:
    """The entries of an archive; a place is the offset of an entry in the table's bytes.

    Args:
        data: The table.
        count: The number of entries that the archive's end states.
        before: Bytes of the object before the archive, whose offsets do not count them.
        start: The table's own offset in the object.
        key: The object's key, if known.
    """

    def __init__(self, data: bytes, count: int, before: int, start: int, key: str | None) -> None:
        self._data, self._count, self._before, self._start, self._key = data, count, before, start, key

    def names(self) -> Iterator[tuple[int, bytes]]:
        """Yield the place of each entry, and its name as it is written.

        All names are read before the first sample, so this does little for each. Raises CorruptError if their number is wrong.
        """
        data, lengths, fixed = self._data, _LENGTHS.unpack_from, _ENTRY.size
        place, count, end = 0, 0, len(data)
        while place < end:
            if place + fixed > end or data[place : place + 4] != b"PK\1\2":
                reason = f"expected an entry of the central directory here, got {data[place : place + 4]!r}"
                raise self._corrupt(place, reason)
            name_size, extra_size, comment_size = lengths(data, place + 28)
            after = place + fixed + name_size
            yield place, data[place + fixed : after]
            place = after + extra_size + comment_size
            count += 1
        if place > end:
            raise self._corrupt(end, "the central directory ends inside its last entry")
        if count != self._count:
            reason = f"the central directory has {count} entries, but the archive's end states {self._count}"
            raise self._corrupt(place, reason)

    def entry(self, place: int) -> Entry:
        """Return the entry at one of the places of `names`. Raises CorruptError if it is damaged."""
        fixed = place + _ENTRY.size
        fields: list[int] = list(_ENTRY.unpack_from(self._data, place))
        extra_start = fixed + fields[10]
        extra = self._data[extra_start : extra_start + fields[11]]
        if IN_EXTRA in fields:
            self._widen(place, fields, extra)
        _, system, _, flags, method, _, _, crc, packed, size, _, _, _, _, _, attributes, offset = fields
        if offset + self._before + packed >= self._start:  # a member also has a header, so it must end before
            raise self._corrupt(place, "this entry's data overlaps the central directory")
        raw_name = self._data[fixed:extra_start]
        is_link = system >> 8 in (_UNIX, _DARWIN) and attributes >> 16 & 0o170000 == _LINK
        name = name_of(raw_name, extra, flags)
        return Entry(name, raw_name, flags, method, crc, packed, size, offset + self._before, is_link)

    def _widen(self, place: int, fields: list[int], extra: bytes) -> None:
        """Replace sizes and offset by the 64-bit values in an entry's extra fields; source: APPNOTE 4.5.3."""
        wide = _part(extra, 1)
        at = 0
        for number in (9, 8, 16):
            if fields[number] == IN_EXTRA and wide is not None:
                if at + 8 > len(wide):
                    raise self._corrupt(place, "the sizes of this entry are cut")
                (fields[number],) = struct.unpack_from("<Q", wide, at)
                at += 8

    def _corrupt(self, place: int, reason: str) -> CorruptError:
        return corrupt(self._key, self._start + place, reason)


def name_of(raw: bytes, extra: bytes, flags: int) -> str:
    """Return a member's name from the bytes, extra fields and flags in the table or in the member's own header."""
    if raw.isascii():
        return raw.decode("ascii")
    # Info-ZIP writes the UTF-8 name in addition to the one in the old encoding, with the CRC of the latter.
    unicode = _part(extra, 0x7075)
    if unicode is not None and unicode[:5] == struct.pack("<BI", 1, zlib.crc32(raw)):
        raw = unicode[5:]
    try:
        # Many tools write UTF-8 without setting the flag; text in the old encoding is hardly ever UTF-8 by chance.
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape") if flags & _UTF8 else raw.decode("cp437")


def _part(extra: bytes, wanted: int) -> bytes | None:
    """Return the content of the extra field with that number; None if there is none."""
    at = 0
    while at + 4 <= len(extra):
        number, size = struct.unpack_from("<HH", extra, at)
        if number == wanted:
            return extra[at + 4 : at + 4 + size]
        at += 4 + size
    return None


def read_table(file: SeekableFile, key: str | None) -> Table:
    """Return the table of an archive. Raises CorruptError if it is missing, or is not that of the whole object."""
    tail_start = max(0, file.size - _END.size - _MAX_COMMENT)
    file.seek(tail_start)
    tail = file.read()
    place = _find_end(tail)
    if place < 0:
        file.seek(0)
        signatures.check(file.read(signatures.SIZE), key, b"PK")
        raise corrupt(key, file.size, "expected a zip's end record here: the archive is cut, or is not a zip")
    end = tail_start + place
    _, disk, table_disk, count_here, count, size, offset, _ = _END.unpack_from(tail, place)
    locator = end - _LOCATOR.size
    if locator >= 0:
        file.seek(locator)
        found = _LOCATOR.unpack(file.read(_LOCATOR.size))
        if found[0] == b"PK\6\7":
            disk, table_disk, count_here, count, size, offset, end = _read_end64(file, locator, found[2], key)
    if disk or table_disk or count_here != count:
        raise corrupt(key, end, "this is one part of an archive in several parts; join them into one")
    start = end - size
    before = start - offset
    if start < 0 or before < 0:
        reason = f"the central directory of {size} bytes from byte {offset} on does not end here: bytes are missing"
        raise corrupt(key, end, reason)
    if before:
        file.seek(0)
        if file.read(4) == b"PK\3\4":
            reason = "an archive begins here, inside another or after it: zips cannot be joined; write one"
            raise corrupt(key, before, reason)
    file.seek(start)
    return Table(file.read(size), count, before, start, key)


def _find_end(tail: bytes) -> int:
    """Return the offset of the end record in an object's last bytes: the one whose comment ends with the object; else -1.

    If no comment does, it is the one followed only by zeros: libarchive pads what it writes to a pipe.
    """
    padded = -1
    zeros = len(tail.rstrip(b"\0"))
    place = len(tail)
    while (place := tail.rfind(b"PK\5\6", 0, place)) >= 0:
        if place + _END.size <= len(tail):
            (comment,) = struct.unpack_from("<H", tail, place + _END.size - 2)
            end = place + _END.size + comment
            if end == len(tail):
                return place
            if zeros <= end < len(tail):
                padded = place
        # The next search must find one that begins before this one.
        place += 3
    return padded


def _read_end64(file: SeekableFile, locator: int, stated: int, key: str | None) -> tuple[int, ...]:
    """Return the end record of a zip64 and its offset: as stated, or just before its locator if the offsets are shifted."""
    for place in (stated, locator - _END64.size):
        if 0 <= place <= locator - _END64.size:
            file.seek(place)
            signature, _, _, _, *rest = _END64.unpack(file.read(_END64.size))
            if signature == b"PK\6\6":
                return (*rest, place)
    raise corrupt(key, locator, "the end record of the zip64 is not at the stated offset")
