"""zip, read member by member: groups of members are the samples, by the same rule as in a tar (see `members.py`).

Tools write the members of a zip in the order in which a file system lists them, so those of one sample need not be neighbours;
samples are in the order of their first members. Directories, hidden files and what macOS adds (`__MACOSX/`) are skipped; stored,
deflated and bzip2 members are read; encrypted ones, other methods and symbolic links are refused. Python's zipfile is not used:
it treats an archive inside another, or the last of joined ones, as the whole, and keeps a kilobyte for each member. Here each
member's header must agree with the table, even if the member is skipped: one damaged bit in the table could hide any file.

Source: PKWARE APPNOTE.TXT 6.3. Writing is in `zip_write.py`; the table, which is at the end, is read by `zip_table.py`.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from io import BytesIO
from itertools import islice
from typing import Any

from sagemaker_channels.errors import CorruptError, corrupt
from sagemaker_channels.records.archives import zip_write
from sagemaker_channels.records.archives.members import MACOS_FOLDER, grouped
from sagemaker_channels.records.archives.zip_table import IN_EXTRA, Entry, Table, name_of, read_table
from sagemaker_channels.records.cursor import Cursor
from sagemaker_channels.records.format import Format
from sagemaker_channels.records.seeking import SeekableFile
from sagemaker_channels.records.sizes import max_sample_bytes, too_large
from sagemaker_channels.records.window import CHUNK, Window
from sagemaker_channels.sample import KEY, ByteStream, Sample

_MACOS_FOLDER = MACOS_FOLDER.encode()
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_SIZES_FOLLOW = 0x8  # flag: the CRC and the sizes are in a descriptor after the content, not in the header
_STORED, _DEFLATED, _BZIP2 = 0, 8, 12
_METHODS = {1: "shrunk", 6: "imploded", 9: "deflate64", 14: "LZMA", 93: "Zstandard", 95: "XZ", 98: "PPMd", 99: "AES"}


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples of an archive; see the module for what a sample is. Positions count samples and skipped members."""
    with closing(SeekableFile(stream, key)) as file:
        if not file.size and not cursor.start:  # An empty object is a marker such as `_SUCCESS`: no members.
            return
        table = read_table(file, key)
        groups = _groups(table)
        if not 0 <= cursor.start <= len(groups):
            reason = (
                f"reading should resume at {cursor.start}, but this ends at {len(groups)}: it is not the archive that was read "
                "before; start the epoch again"
            )
            raise corrupt(key, file.size, reason)
        reader = _Members(file, key)
        for number, (group, places) in enumerate(islice(groups.items(), cursor.start, None), cursor.start + 1):
            members = map(table.entry, places)
            try:
                if isinstance(group, bytes):
                    yield from grouped(reader.members(members, number), key, cursor)
                else:
                    reader.go_to_content(*members)  # else a damaged name in the table could hide a file
            except CorruptError as error:
                cursor.skip(error)


def _count(stream: ByteStream, key: str | None) -> int:
    """Return the number of samples by the archive's table."""
    with closing(SeekableFile(stream, key, at_once=False)) as file:
        return sum(isinstance(group, bytes) for group in _groups(read_table(file, key))) if file.size else 0


def _groups(table: Table) -> dict[bytes | int, list[int]]:
    """Return the places of the members of each sample, by their common name, and of each skipped member, by its place."""
    groups: dict[bytes | int, list[int]] = {}
    for place, name in table.names():
        slash = name.rfind(b"/") + 1
        dot = name.find(b".", slash)
        if dot == slash or slash == len(name) or name.startswith(_MACOS_FOLDER):
            groups[place] = [place]
        else:
            groups.setdefault(name if dot < 0 else name[:dot], []).append(place)
    return groups


class _Members:
    """The members of an archive, through one window: neighbours cost no seek and no small reads."""

    def __init__(self, file: SeekableFile, key: str | None) -> None:
        self._file = file
        self._key = key
        self._window = Window(file)
        file.seek(0)

    def members(self, entries: Iterable[Entry], position: int) -> Iterator[tuple[str | None, bytes, int, int]]:
        """Yield the members of a sample as `grouped` takes them."""
        for entry in entries:
            size = max(entry.size, entry.packed_size)
            if size > CHUNK and size > (most := max_sample_bytes()):
                raise too_large(self._key, entry.offset, f"member {entry.name!r} has {size:,} bytes", most)
            yield entry.name, self._content(entry), entry.offset, position
        yield None, b"", 0, position

    def go_to_content(self, entry: Entry) -> int:
        """Go to a member's content and return the flags in its header. Raises CorruptError if header and table differ."""
        self._go_to(entry.offset)
        take = self._window.take
        header = take(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\3\4"):
            raise corrupt(self._key, entry.offset, f"expected the header of member {entry.name!r} here")
        fields: tuple[int, ...] = _LOCAL.unpack(header)
        _, _, flags, method, _, _, crc, packed_size, size, name_size, extra_size = fields
        name, extra = take(name_size), take(extra_size)
        agrees = (
            name == entry.raw_name
            and method == entry.method
            and len(extra) == extra_size
            and (name.isascii() or name_of(name, extra, flags) == entry.name)
        )
        if not flags & _SIZES_FOLLOW:
            agrees &= (
                crc == entry.crc and packed_size in (entry.packed_size, IN_EXTRA) and size in (entry.size, IN_EXTRA)
            )
        if not agrees:
            raise self._corrupt(entry, "has a header that differs from the central directory")
        return flags

    def _content(self, entry: Entry) -> bytes:
        """Return a member's content. Raises CorruptError if it is damaged or cannot be read."""
        flags = self.go_to_content(entry)
        if (flags | entry.flags) & 0x41:
            raise self._corrupt(entry, "is encrypted; write it without a password")
        if entry.is_link:
            raise self._corrupt(entry, "is a symbolic link; write the file itself (zip without -y)")
        if entry.method not in (_STORED, _DEFLATED, _BZIP2):
            method = f"{entry.method} ({_METHODS.get(entry.method, 'unknown')})"
            reason = f"is compressed by method {method}, which is not supported; write it stored or deflated"
            raise self._corrupt(entry, reason)
        data = self._window.take(entry.packed_size) if entry.method == _STORED else self._unpacked(entry)
        if len(data) != entry.size:
            raise self._corrupt(entry, f"has {len(data)} bytes, but the central directory states {entry.size}")
        if zlib.crc32(data) != entry.crc:
            raise self._corrupt(entry, "is damaged: its CRC is wrong")
        if flags & _SIZES_FOLLOW and not self._is_described(entry):
            raise self._corrupt(entry, "has a descriptor that differs from the central directory")
        return data

    def _is_described(self, entry: Entry) -> bool:
        """Return whether the next bytes are a descriptor, with or without signature, that agrees with the table."""
        take = self._window.take
        crc = take(4)
        if crc == b"PK\7\x08":
            crc = take(4)
        if crc != struct.pack("<I", entry.crc):
            return False
        sizes = take(8)
        if sizes == struct.pack("<II", entry.packed_size & IN_EXTRA, entry.size & IN_EXTRA):
            return True
        return sizes + take(8) == struct.pack("<QQ", entry.packed_size, entry.size)

    def _unpacked(self, entry: Entry) -> bytes:
        """Return a member's unpacked content, at most one byte more than the table states; held in memory only once."""
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
            raise self._corrupt(entry, f"is damaged: {error}") from error
        if missing and (left or unpack.unused_data or not unpack.eof):
            raise self._corrupt(entry, "is damaged: its compressed data is cut or longer")
        return content.getvalue()

    def _corrupt(self, entry: Entry, reason: str) -> CorruptError:
        return corrupt(self._key, entry.offset, f"member {entry.name!r} {reason}")

    def _go_to(self, offset: int) -> None:
        gap = offset - self._window.offset
        if 0 <= gap <= CHUNK:
            self._window.skip(gap)
        elif gap:
            self._file.seek(offset)
            self._window = Window(self._file, offset)


FORMAT = Format(
    name="zip",
    content_types=("application/zip",),
    sample="the same, wherever a sample's members are in the archive",
    read=_read,
    count=_count,
    write=zip_write.write,
    ending=".zip",
    after_damage="the next sample; after a damaged table, the next object",
    boundaries=False,  # the table at the end of joined archives is that of the last one
    example=lambda number, data: {KEY: f"{number:06d}", "bin": data},
)
