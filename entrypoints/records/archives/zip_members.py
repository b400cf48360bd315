"""zip, read member by member: groups of members are the samples, by the same rule as in a tar.

Members that share their name up to the first dot of the base name are one sample, and what follows the dot is the field, so
that a zip and a tar of the same files are the same samples (see `members.py`). A zip has a table of contents, and tools write
members in the order in which a file system lists them: so members of one sample need not be neighbours here; a sample
stands where its first member does. Directories, hidden files (`members.py`) and what macOS adds (`__MACOSX/`) are passed over.

The table stands at the end, so a zip is read from files and through the connector; a Pipe joins objects and cannot bring
it, unless it wraps them as RecordIO. Stored, deflated and bzip2 members are read; encrypted ones, other methods and
symbolic links are refused. Python's zipfile is not used: it takes an archive that lies inside of another, or the last of
joined ones, for the whole, and keeps a kilobyte for each member. Here each member's header must agree with the table in name,
size and CRC, also where the member is passed over: one damaged bit in the table could hide any file.

Source: PKWARE APPNOTE.TXT 6.3. Writing is in `zip_write.py`; the table is read by `zip_table.py`.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from array import array
from collections.abc import Iterator
from contextlib import closing
from heapq import merge
from io import BytesIO
from itertools import pairwise
from typing import Any

from entrypoints.errors import corrupt
from entrypoints.records.archives.zip_table import Entry, Table, name_of, read_table
from entrypoints.records.cursor import Cursor
from entrypoints.records.seeking import SeekableFile
from entrypoints.records.sizes import max_sample_bytes, too_large
from entrypoints.records.window import CHUNK, Window
from entrypoints.sample import DATA, KEY, ByteStream, Sample

BOUNDARIES = False  # the table of joined archives is the last one's

NO_DATA = "__MACOSX/"  # what macOS knows of the files
_NO_DATA = NO_DATA.encode()
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_SIZES_FOLLOW = 0x8  # flag: the CRC and the sizes are in a descriptor after the content, not in the header
_IN_EXTRA = 0xFFFFFFFF  # a size of zip64
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
        most, held = max_sample_bytes(), 0
        end = 0  # the position behind the last member
        for place, position in _places(table, cursor.start):
            entry = table.entry(place)
            if not _is_file(entry.raw_name):
                reader.go_to_content(entry)  # or a damaged name in the table would hide a file
                continue
            group, field = _sample_of(entry.name)
            if sample and sample[KEY] != group:
                cursor.position = position
                yield sample
                sample = {}
            if not sample:
                sample[KEY] = group
                held = 0
            held += max(entry.size, entry.packed_size)
            if held > most:
                what = f"sample {group!r} has {held:,} bytes or more, with member {entry.name!r}"
                raise too_large(key, entry.offset, what, most)
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
    """Yield where in the table each entry is, those of a sample beside each other, and its position.

    What is passed over (`_is_file`) is among them; where the order is not the table's, it comes last.
    """
    if start > 0:  # noted when the order was the table's, so there is no need to work it out again
        for place, _ in table.names(start):
            yield place, place
        return
    places = array("Q")
    ranks = array("Q")
    others = array("Q")
    first: dict[bytes, int] = {}
    for place, name in table.names():
        if _is_file(name):
            dot = name.find(b".", name.rfind(b"/") + 1)
            ranks.append(first.setdefault(name if dot < 0 else name[:dot], len(first)))
            places.append(place)
        else:
            others.append(place)
    del first
    if start == 0 and all(rank <= after for rank, after in pairwise(ranks)):
        for place in merge(places, others):
            yield place, place
        return
    table.check_start(-start, len(places))
    order = sorted(range(len(places)), key=ranks.__getitem__)
    for number in range(-start, len(places)):
        yield places[order[number]], -number
    for place in others:
        yield place, -len(places)


def _is_file(name: bytes) -> bool:
    return not (name.endswith(b"/") or name.startswith(b".", name.rfind(b"/") + 1) or name.startswith(_NO_DATA))


class _Members:
    """The members of an archive, through one window: neighbours cost no seek and no small reads."""

    def __init__(self, file: SeekableFile, key: str | None) -> None:
        self._file = file
        self._key = key
        self._window = Window(file)
        file.seek(0)

    def go_to_content(self, entry: Entry) -> int:
        """Go to where a member's content begins, and return the flags in its header.

        Raises CorruptError unless the header says of the member what the table says.
        """
        self._go_to(entry.offset)
        take = self._window.take
        header = take(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\3\4"):
            raise corrupt(self._key, entry.offset, f"here should be the header of member {entry.name!r}")
        fields: tuple[int, ...] = _LOCAL.unpack(header)
        _, _, flags, method, _, _, crc, packed_size, size, name_size, extra_size = fields
        name, extra = take(name_size), take(extra_size)
        agrees = (
            name == entry.raw_name
            and method == entry.method
            and len(extra) == extra_size
            and (name.isascii() or name_of(name, extra, flags) == entry.name)
        )
        if agrees and not flags & _SIZES_FOLLOW:
            agrees = (
                crc == entry.crc
                and (packed_size == entry.packed_size or packed_size == _IN_EXTRA)
                and (size == entry.size or size == _IN_EXTRA)
            )
        if not agrees:
            raise corrupt(self._key, entry.offset, f"the header of member {entry.name!r} and the table differ")
        return flags

    def read(self, entry: Entry) -> bytes:
        """Return a member's content, which must agree with its CRC; the archive's `entry` says what it is."""
        flags = self.go_to_content(entry)
        if (flags | entry.flags) & 0x41:
            raise corrupt(self._key, entry.offset, f"member {entry.name!r} is encrypted: write it without a password")
        if entry.is_link:
            raise corrupt(
                self._key,
                entry.offset,
                f"member {entry.name!r} is a symbolic link: write the file itself (zip without -y)",
            )
        if entry.method not in (_STORED, _DEFLATED, _BZIP2):
            raise corrupt(
                self._key,
                entry.offset,
                f"member {entry.name!r} is compressed by method {entry.method} ({_METHODS.get(entry.method, 'unknown')}), "
                "which is not read here: write it stored or deflated",
            )
        data = self._window.take(entry.packed_size) if entry.method == _STORED else self._unpacked(entry)
        if len(data) != entry.size:
            raise corrupt(
                self._key, entry.offset, f"member {entry.name!r} has {len(data)} bytes, and the table says {entry.size}"
            )
        if zlib.crc32(data) != entry.crc:
            raise corrupt(self._key, entry.offset, f"the CRC of member {entry.name!r} is wrong: it is damaged")
        if flags & _SIZES_FOLLOW and not self._is_described(entry):
            raise corrupt(self._key, entry.offset, f"the descriptor after member {entry.name!r} and the table differ")
        return data

    def _is_described(self, entry: Entry) -> bool:
        """Whether a descriptor follows that agrees with the table; its signature may be left out."""
        take = self._window.take
        crc = take(4)
        if crc == b"PK\7\x08":
            crc = take(4)
        if crc != struct.pack("<I", entry.crc):
            return False
        sizes = take(8)
        if sizes == struct.pack("<II", entry.packed_size & _IN_EXTRA, entry.size & _IN_EXTRA):
            return True
        return sizes + take(8) == struct.pack("<QQ", entry.packed_size, entry.size)

    def _unpacked(self, entry: Entry) -> bytes:
        """Return what a member unpacks to, at most one byte more than the table says; never held twice."""
        deflated = entry.method == _DEFLATED
        unpack: Any = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else bz2.BZ2Decompressor()
        content = BytesIO()
        packed, left, missing = b"", entry.packed_size, entry.size + 1
        try:
            while missing and not unpack.eof:
                if left and not packed and (deflated or unpack.needs_input):
                    packed = self._window.read(left)
                    left -= len(packed)
                piece = unpack.decompress(packed, min(missing, CHUNK))
                if not piece and not packed:
                    break
                packed = unpack.unconsumed_tail if deflated else b""  # bz2 keeps it itself
                missing -= content.write(piece)
        except (zlib.error, OSError, ValueError) as error:
            raise corrupt(self._key, entry.offset, f"member {entry.name!r} is damaged: {error}") from error
        if missing and (left or unpack.unused_data or not unpack.eof):
            raise corrupt(
                self._key, entry.offset, f"member {entry.name!r} is damaged: its compressed data is cut or longer"
            )
        return content.getvalue()

    def _go_to(self, offset: int) -> None:
        gap = offset - self._window.offset
        if 0 <= gap <= CHUNK:
            self._window.skip(gap)
        elif gap:
            self._file.seek(offset)
            self._window = Window(self._file, offset)
