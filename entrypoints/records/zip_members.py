"""zip, read member by member: groups of members are the samples, by the same rule as in a tar.

Members that share their name up to the first dot of the base name are one sample, and what follows the dot is the field, so
that a zip and a tar of the same files are the same samples (see `members.py`). A zip has a table of contents, and tools write
members in the order in which a file system lists them: so members of one sample need not be neighbours here; a sample
stands where its first member does. Directories, hidden files (`members.py`) and what macOS adds (`__MACOSX/`) are passed over.

The table stands at the end, so a zip is read from files and through the connector; a Pipe joins objects and cannot bring
it, unless it wraps them as RecordIO. Stored, deflated and bzip2 members are read; encrypted ones, other methods and
symbolic links are refused. Python's zipfile is not used: it takes an archive that lies inside of another, or the last of
joined ones, for the whole, and keeps a kilobyte for each member. Here sizes, names, CRCs and the table must agree.

Source: PKWARE APPNOTE.TXT 6.3. Writing is in `zip_write.py`; the table is read by `zip_table.py`.
"""

from __future__ import annotations

import bz2
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

from entrypoints.errors import corrupt
from entrypoints.records.cursor import Cursor
from entrypoints.records.seeking import SeekableFile
from entrypoints.records.window import CHUNK, Window
from entrypoints.records.zip_table import Entry, Table, read_table
from entrypoints.sample import DATA, KEY, ByteStream, Sample

BOUNDARIES = False  # the table of joined archives is the last one's

NO_DATA = "__MACOSX/"  # what macOS knows of the files
_NO_DATA = NO_DATA.encode()
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_STORED, _DEFLATED, _BZIP2 = 0, 8, 12
_METHODS = {1: "shrunk", 6: "imploded", 9: "deflate64", 14: "LZMA", 93: "Zstandard", 95: "XZ", 98: "PPMd", 99: "AES"}


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """The samples of an archive; see the module for what a sample is.

    Positions are bytes of the table; where the samples' order is not the table's they count members, below 0. Raises
    CorruptError, naming the offset, for what is cut or damaged and for what is refused.
    """
    cursor = cursor or Cursor()
    with closing(SeekableFile(stream, key)) as file:
        if not file.size and not cursor.start:  # a marker such as `_SUCCESS`: no members, as of an empty tar
            return
        table = read_table(file, key)
        reader = _Members(file, key)
        sample: Sample = {}
        end = 0  # the position behind the last member
        for place, position in _places(table, cursor.start):
            entry = table.entry(place)
            group, field = _sample_of(entry.name)
            if sample and sample[KEY] != group:
                cursor.position = position
                yield sample
                sample = {}
            if not sample:
                sample[KEY] = group
            if field in sample:
                raise corrupt(
                    key, entry.offset, f"member {entry.name!r} gives field {field!r} of sample {group!r} a second time"
                )
            sample[field] = reader.read(entry)
            end = table.size if position == place else position - 1
        if sample:
            cursor.position = end
            yield sample


def _sample_of(name: str) -> tuple[str, str]:
    dot = name.find(".", name.rfind("/") + 1)
    return (name, DATA) if dot < 0 else (name[:dot], name[dot + 1 :])


def _places(table: Table, start: int) -> Iterator[tuple[int, int]]:
    """Where in the table the members stand that are files, those of a sample beside each other, and their positions."""
    if start > 0:  # noted where the order is the table's, so it need not be found out again
        for place, name in table.names(start):
            if _is_file(name):
                yield place, place
        return
    places = array("Q")
    ranks = array("Q")
    first: dict[bytes, int] = {}
    for place, name in table.names():
        if _is_file(name):
            dot = name.find(b".", name.rfind(b"/") + 1)
            ranks.append(first.setdefault(name if dot < 0 else name[:dot], len(first)))
            places.append(place)
    del first
    if start == 0 and all(rank <= after for rank, after in pairwise(ranks)):
        for place in places:
            yield place, place
        return
    table.check_start(-start, len(places))
    order = sorted(range(len(places)), key=ranks.__getitem__)
    for number in range(-start, len(places)):
        yield places[order[number]], -number


def _is_file(name: bytes) -> bool:
    return not (name.endswith(b"/") or name.startswith(b".", name.rfind(b"/") + 1) or name.startswith(_NO_DATA))


class _Members:
    """The members of an archive, through one window: neighbours cost no seek and no small reads."""

    def __init__(self, file: SeekableFile, key: str | None) -> None:
        self._file = file
        self._key = key
        self._window = Window(file)
        file.seek(0)

    def read(self, entry: Entry) -> bytes:
        """A member's content, checked against its CRC; the archive's `entry` says what it is."""
        self._go_to(entry.offset)
        window = self._window
        header = window.take(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\3\4"):
            raise corrupt(self._key, entry.offset, f"here should be the header of member {entry.name!r}")
        _, _, flags, method, _, _, _, _, _, name_size, extra_size = _LOCAL.unpack(header)
        if window.take(name_size) != entry.raw_name or method != entry.method or window.skip(extra_size) < extra_size:
            raise corrupt(self._key, entry.offset, f"the header of member {entry.name!r} and the table differ")
        if (flags | entry.flags) & 0x41:
            raise corrupt(self._key, entry.offset, f"member {entry.name!r} is encrypted: write it without a password")
        if entry.is_link:
            raise corrupt(
                self._key,
                entry.offset,
                f"member {entry.name!r} is a symbolic link: write the file itself (zip without -y)",
            )
        if method not in (_STORED, _DEFLATED, _BZIP2):
            raise corrupt(
                self._key,
                entry.offset,
                f"member {entry.name!r} is compressed by method {method} ({_METHODS.get(method, 'unknown')}), which is "
                "not read here: write it stored or deflated",
            )
        packed = window.take(entry.packed_size)
        if len(packed) < entry.packed_size:
            raise corrupt(self._key, entry.offset, f"the archive ends inside of member {entry.name!r}")
        data = self._unpacked(entry, packed)
        if len(data) != entry.size:
            raise corrupt(
                self._key, entry.offset, f"member {entry.name!r} has {len(data)} bytes, and the table says {entry.size}"
            )
        if zlib.crc32(data) != entry.crc:
            raise corrupt(self._key, entry.offset, f"the CRC of member {entry.name!r} is wrong: it is damaged")
        return data

    def _unpacked(self, entry: Entry, packed: bytes) -> bytes:
        if entry.method == _STORED:
            return packed
        # One byte more than there should be, so that more shows without being held.
        limit = min(entry.size + 1, sys.maxsize)
        try:
            if entry.method == _DEFLATED:
                inflate = zlib.decompressobj(-zlib.MAX_WBITS)
                data, rest, ended = inflate.decompress(packed, limit), inflate.unused_data, inflate.eof
            else:
                unzip = bz2.BZ2Decompressor()
                data, rest, ended = unzip.decompress(packed, limit), unzip.unused_data, unzip.eof
        except (zlib.error, OSError, ValueError) as error:
            raise corrupt(self._key, entry.offset, f"member {entry.name!r} is damaged: {error}") from error
        if rest or (not ended and len(data) <= entry.size):
            raise corrupt(
                self._key, entry.offset, f"member {entry.name!r} is damaged: its compressed data is cut or longer"
            )
        return data

    def _go_to(self, offset: int) -> None:
        gap = offset - self._window.offset
        if 0 <= gap <= CHUNK:
            self._window.skip(gap)
        elif gap:
            self._file.seek(offset)
            self._window = Window(self._file, offset)
