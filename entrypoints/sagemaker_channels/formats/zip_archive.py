"""zip: groups of members are the samples, by the same rule as in a tar (see `members.py`).

Tools write the members of a zip in the order in which a file system lists them, so those of one sample need not be neighbours;
samples are in the order of their first members. Directories, hidden files and what macOS adds (`__MACOSX/`) are skipped; stored,
deflated, bzip2 and LZMA members are read; encrypted ones, other methods and symbolic links are refused.

Python's zipfile reads the archive. What it leaves out is here: it treats an archive inside another, or the last of joined ones, as
the whole, and believes that a file is empty if the table at the end says so. One damaged bit in the table could hide any file, so
the names of skipped members are checked, too.

Source: PKWARE APPNOTE.TXT 6.3.
"""

from __future__ import annotations

import io
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from lzma import LZMAError
from typing import BinaryIO

from sagemaker_channels.errors import CHECK_FORMAT, CorruptError, corrupt
from sagemaker_channels.formats import signatures
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.members import Member, group_of, grouped, members_of, of_files
from sagemaker_channels.formats.seeking import SeekableFile
from sagemaker_channels.formats.window import CHUNK, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import KEY, ByteStream, Sample

_MACOS_FOLDER = "__MACOSX/"  # what macOS adds: not samples, but its own attributes of the files
_END = struct.Struct("<10xH8xH")  # number of entries, length of the comment
_MAX_COMMENT = 0xFFFF
_BUFFER = 1 << 16  # bytes: headers are read in small pieces
_HEADER = struct.Struct("<4s2xH6xI8xHH")  # signature, flags, CRC, lengths of the name and the extra fields
_SIZES_FOLLOW, _UTF8 = 0x8, 0x800  # flags; with the first, CRC and sizes are after the content
_REFUSED = 0x61  # flags of encrypted members and of patches
_UNIX, _DARWIN = 3, 19
_DAMAGE = (zipfile.BadZipFile, RuntimeError, EOFError, ValueError, OSError, struct.error, zlib.error, LZMAError)
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that zip can express: the same samples become the same bytes
_MAX_NAME = 0xFFFF  # bytes
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile holds all that a piece of another method unpacks to
_PIECE = 4096  # bytes of such a piece


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples of an archive; see the module for what a sample is. Positions count samples and skipped members."""
    with closing(SeekableFile(stream, key)) as file:
        if not file.size and not cursor.start:  # An empty object is a marker such as `_SUCCESS`: no members.
            return
        archive = _Archive(file, key)
        groups = archive.groups()
        if not 0 <= cursor.start <= len(groups):
            reason = (
                f"reading should resume at {cursor.start}, but this ends at {len(groups)}: it is not the archive that was read "
                "before; start the epoch again"
            )
            raise corrupt(key, file.size, reason)
        for number, (group, entries) in enumerate(islice(groups.items(), cursor.start, None), cursor.start + 1):
            try:
                if isinstance(group, str):
                    yield from grouped(archive.members(entries, number), key, cursor)
                else:
                    archive.check_name(*entries)
            except CorruptError as error:
                cursor.skip(error)


def _count(stream: ByteStream, key: str | None) -> int:
    """Return the number of samples by the archive's table."""
    with closing(SeekableFile(stream, key, at_once=False)) as file:
        return sum(isinstance(group, str) for group in _Archive(file, key).groups()) if file.size else 0


class _Archive:
    """An archive with the checks that zipfile leaves out. Raises CorruptError if the table is not that of the whole object."""

    def __init__(self, file: SeekableFile, key: str | None) -> None:
        self._key, self._size = key, file.size
        file.seek(max(0, file.size - _END.size - _MAX_COMMENT))
        tail = file.read()
        place = tail.rfind(b"PK\5\6", 0, len(tail) - _END.size + 4)
        count, comment = _END.unpack_from(tail, place) if place >= 0 else (0, 0)
        # libarchive pads with zeros what it writes to a pipe.
        if place < 0 or len(tail) < place + _END.size + comment or tail[place + _END.size + comment :].strip(b"\0"):
            file.seek(0)
            signatures.check(file.read(signatures.SIZE), key, b"PK")
            reason = "expected a zip's end record here: the archive is cut, or is not a zip"
            raise CorruptError(reason, object=key, position=file.size, remedy=CHECK_FORMAT)
        if tail[max(0, place - 20) : place].startswith(b"PK\6\7"):
            count = int.from_bytes(tail[place - 44 : place - 36], "little")  # in the zip64's record before
        self._file = io.BufferedReader(file, _BUFFER)
        try:
            self._zip = zipfile.ZipFile(self._file)
            self._entries = self._zip.infolist()
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the medium
            raise corrupt(key, file.size, f"the central directory is damaged: {error}") from error
        if len(self._entries) != count:
            reason = f"the central directory has {len(self._entries)} entries, but the archive's end states {count}"
            raise corrupt(key, file.size, reason)
        first = min((entry.header_offset for entry in self._entries), default=file.size)
        self._file.seek(0)
        if first and self._file.read(4) == b"PK\3\4":
            reason = "an archive begins here, inside another or after it: zips cannot be joined; write one"
            raise corrupt(key, first, reason)

    def groups(self) -> dict[str | int, list[zipfile.ZipInfo]]:
        """Return the members of each sample by their common name, and each skipped member by its number."""
        groups: dict[str | int, list[zipfile.ZipInfo]] = {}
        for number, entry in enumerate(self._entries):
            name = _name_of(entry)
            group = None if name.endswith("/") or name.startswith(_MACOS_FOLDER) else group_of(name)
            groups.setdefault(number if group is None else group, []).append(entry)
        return groups

    def members(self, entries: Iterable[zipfile.ZipInfo], position: int) -> Iterator[Member]:
        """Yield the members of a sample as `grouped` takes them."""
        for entry in entries:
            if entry.create_system in (_UNIX, _DARWIN) and entry.external_attr >> 28 == 0o12:
                raise self._corrupt(entry, "is a symbolic link; write the file itself (zip without -y)")
            yield _name_of(entry), self.content(entry), entry.header_offset, position
        yield None, b"", 0, position

    def check_name(self, entry: zipfile.ZipInfo) -> None:
        """Raise CorruptError if a member's own header has another name than the table, by which it is skipped."""
        # Opening compares the names before it refuses an encrypted member, or another method, which are not read here.
        with self._reported(entry), suppress(RuntimeError):
            self._zip.open(entry).close()

    def content(self, entry: zipfile.ZipInfo) -> bytes:
        """Return a member's content. Raises CorruptError if it is damaged or cannot be read."""
        size = entry.file_size
        if entry.header_offset + entry.compress_size > self._size:
            raise self._corrupt(entry, f"has {entry.compress_size:,} bytes, more than the archive")
        if size > CHUNK and size > (most := max_sample_bytes()):
            what = f"member {_name_of(entry)!r} has {size:,} bytes"
            raise too_large(self._key, entry.header_offset, what, most)
        with self._reported(entry):
            if (data := self._small(entry)) is not None:
                return data
            whole = io.BytesIO()  # grows and returns its bytes without copying them
            with self._zip.open(entry) as member:
                shutil.copyfileobj(member, whole, CHUNK if entry.compress_type in _BOUNDED else _PIECE)
            if not whole.tell():
                self._check_empty(entry)
            return whole.getvalue()

    def _small(self, entry: zipfile.ZipInfo) -> bytes | None:
        """Return a small member's content if nothing is wrong with it: zipfile takes twice as long for 10 KB, and says what is."""
        is_small = 0 < entry.file_size < CHUNK > entry.compress_size
        if not is_small or entry.compress_type not in _BOUNDED or entry.flag_bits & _REFUSED:
            return None
        signature, flags, _, name_size, extra_size = self._own_header(entry)
        name = self._file.read(name_size + extra_size)[:name_size]
        text = name.decode("utf-8" if flags & _UTF8 else "cp437", "surrogateescape")
        if (signature, text) != (b"PK\3\4", entry.orig_filename):
            return None
        data = self._file.read(entry.compress_size)
        if entry.compress_type == zipfile.ZIP_DEFLATED:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, CHUNK)
        return data if (len(data), zlib.crc32(data)) == (entry.file_size, entry.CRC) else None

    def _own_header(self, entry: zipfile.ZipInfo) -> tuple[bytes, int, int, int, int]:
        """Return signature, flags, CRC, and the lengths of name and extra fields, before which the file is left."""
        self._file.seek(entry.header_offset)
        return _HEADER.unpack(self._file.read(_HEADER.size))

    @contextmanager
    def _reported(self, entry: zipfile.ZipInfo) -> Iterator[None]:
        """Raise CorruptError, which names the member, for zipfile's errors."""
        try:
            yield
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the medium
            # An encrypted member is a RuntimeError, another method a NotImplementedError, which is one, too.
            remedy = "; write it stored or deflated, without a password" if isinstance(error, RuntimeError) else ""
            raise self._corrupt(entry, f"{'cannot be read' if remedy else 'is damaged'}: {error}{remedy}") from error

    def _check_empty(self, entry: zipfile.ZipInfo) -> None:
        """Raise BadZipFile if a member is not empty by its own header. Of any other member, the content proves the table's CRC."""
        _, flags, crc, name_size, extra_size = self._own_header(entry)
        if flags & _SIZES_FOLLOW:
            self._file.seek(name_size + extra_size + entry.compress_size, io.SEEK_CUR)
            stated = self._file.read(16).removeprefix(b"PK\7\x08")
            crc |= not stated.startswith(struct.pack("<3I", 0, entry.compress_size, 0))
        if crc:
            raise zipfile.BadZipFile("its own header differs from the central directory")

    def _corrupt(self, entry: zipfile.ZipInfo, reason: str) -> CorruptError:
        return corrupt(self._key, entry.header_offset, f"member {_name_of(entry)!r} {reason}")


def _name_of(entry: zipfile.ZipInfo) -> str:
    name = entry.orig_filename
    if name.isascii() or entry.flag_bits & _UTF8:
        return name
    try:
        # Many tools write UTF-8 without setting the flag; text in the old encoding is hardly ever UTF-8 by chance.
        return name.encode("cp437").decode("utf-8")
    except UnicodeDecodeError:
        return name


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples as one archive, each field as the stored member `<__key__>.<field>`, and return their number.

    Raises SampleError if a sample would not be read back the same (see `members.py`), or has the key of an earlier one.
    """
    keys: set[str] = set()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:

        def add(sample: Sample) -> tuple[()]:
            members, key = members_of(sample), sample[KEY]
            if key in keys:
                raise ValueError("an earlier sample has this __key__, and both would be read as one; give each its own")
            keys.add(key)
            if key.startswith(_MACOS_FOLDER):
                raise ValueError(f"members in {_MACOS_FOLDER} are skipped when a zip is read; choose another __key__")
            for name, data in members:
                if (size := len(name.encode())) > _MAX_NAME:
                    raise ValueError(f"its files' names have {size} bytes; a zip allows at most {_MAX_NAME}")
                header = zipfile.ZipInfo(name, _TIME)
                header.external_attr = 0o100644 << 16
                archive.writestr(header, data)
            return ()

        return write_each(add, stream, samples)


FORMAT = Format(
    name="zip",
    content_types=("application/zip",),
    sample="the same, wherever a sample's members are in the archive",
    read=_read,
    count=_count,
    write=write,
    named=True,
    holds="fields",
    fit=of_files,
    ending=".zip",
    after_damage="the next sample; after a damaged table, the next object",
    boundaries=False,  # the table at the end of joined archives is that of the last one
    example=lambda number, data: {KEY: f"{number:06d}", "bin": data},
)
