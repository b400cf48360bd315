"""tar as a stream: groups of neighbouring members, as in WebDataset, are the samples (the rule is in `members.py`).

Names keep their case. Directories, links and devices are skipped. The first skipped link is logged: it has no bytes in a stream,
only the name of a file, which may have passed long ago. Of Python's tarfile, the parser of unusual headers and the writer are
used: as a reader it is four times slower than a FIFO, reads only the first of joined archives (a Pipe joins them) and stops
silently at damage. Here every header's checksum is verified, and an archive without its end marker is an error. Read: ustar, pax
(path, size), GNU long names, gzip around all of it; refused: sparse files and volumes, which a stream cannot restore.

Source: POSIX.1-2017 pax; GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

import logging
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import BinaryIO

from sagemaker_channels.errors import corrupt
from sagemaker_channels.formats.cursor import Cursor, go_to
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.members import Member, Turns, grouped, members_of, of_files
from sagemaker_channels.formats.window import Window, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import KEY, ByteStream, Sample

_log = logging.getLogger(__name__)
_logged: set[str] = set()  # the link that has been logged
BLOCK = 512
_ZEROS = bytes(BLOCK)
_FIELDS = struct.Struct("100s24x12s12x8s356x")  # name, size, checksum
_MAGIC = slice(257, 263)
_USTAR = b"ustar\0"
_EMPTY_BYTES = 20 * BLOCK  # of zeros, an empty archive as tar writes it
_CHECKED = 16  # extended headers that are remembered
_TIME = b"%d mtime="  # how a pax record with the time begins, in an extended header of so many bytes
_LINKS = b"12"
_NO_DATA = b"123456V"  # links, devices, directories, FIFOs, a volume's label: no content follows, whatever their size
_DESCRIBING_ONE = b"xXLK"  # their content describes the next member; X: pax records as Solaris writes them
_DESCRIBING = b"g" + _DESCRIBING_ONE  # or all that follow
_DUMP_DIR = b"D"  # a directory's listing, which GNU tar adds with --listed-incremental
_SPARSE = "a sparse file, which cannot be read from a stream: write it as a plain file"
_GLOBAL = "an extended header that gives all members one path or one size; write the archive with one for each member"
_REFUSED = {
    b"S": _SPARSE,
    b"M": "the continuation of a file from another volume, which cannot be read from a stream: write it as a plain file",
}


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples of one or more joined archives; see the module for what a sample is. Positions are bytes."""
    go_to(stream, cursor.start, key)
    turns = Turns(*cursor.turns) if cursor.turns[1] > 1 else None
    window = Window(stream, cursor.start)
    return grouped(_members(window, key, turns), key, cursor)


def _members(window: Window, key: str | None, turns: Turns | None) -> Iterator[Member]:
    """Yield every file of a stream of archives, without the content of samples whose turn it is not."""
    own: dict[bytes, str] = {}  # path and size of the next member
    inside = False  # of an archive: its end marker is still to come
    is_lone = False  # the last block was zeros, and the one before was not: the first half of an end marker
    begin = -1  # of the headers that describe the next member
    # Extended headers that have been checked, with their content's size, and how it begins if it is nothing but the time. Most are
    # equal to one before, but webdataset's have a few sizes, since the fractions of its times have as many digits as they need.
    checked: dict[bytes, tuple[int, bytes]] = {}
    kind, is_first = b"", key is not None and not window.offset  # whether an object's beginning is read
    take, most = window.take, max_sample_bytes()
    while True:
        # Plain files that are whole in the window, and described by nothing but their time: nearly all, so without a call for each
        # block.
        view, place, end = window.view, window.position, window.end
        while begin < 0 and not (own or is_lone):
            header = place
            block = view[header : header + BLOCK].tobytes()
            if described := checked.get(block):
                size, time_alone = described
                content = view[header + BLOCK : header + BLOCK + size].tobytes()
                if not (content.startswith(time_alone) and content.endswith(b"\n")):
                    break
                header += 2 * BLOCK
                block = view[header : header + BLOCK].tobytes()
            plain = _plain(block) if header + BLOCK <= end else None
            if plain is None:
                break
            size, name = plain
            stop = header + BLOCK + size
            after = stop + (-size % BLOCK)
            if after > end or name.endswith("/"):
                break
            kind, inside, begin = b"0", True, window.before + place
            window.position = place = after
            data = view[header + BLOCK : stop].tobytes() if turns is None or turns.wants(name) else b""
            yield name, data, window.before + header, begin
            begin = -1
        offset = window.offset
        block = take(BLOCK)
        if len(block) < BLOCK:
            _check_end(block, offset, inside, key)
            return
        if block == _ZEROS:
            if inside and kind in _DESCRIBING_ONE:
                reason = "the archive ends after an extended header: the member it describes is missing"
                raise corrupt(key, offset, reason)
            if is_first and not kind and offset >= _EMPTY_BYTES:
                reason = f"more than {offset:,} bytes of zeros and no member: the file was not written whole"
                raise corrupt(key, 0, reason)
            if turns is not None:
                turns.end_group()
            if inside:
                yield None, b"", offset + BLOCK, offset + BLOCK
            is_lone, inside, begin = inside, False, -1
            continue
        kind, size, name = (b"x", checked[block][0], "") if block in checked else _header(block, key, offset)
        if is_lone:
            reason = "a single block of zeros, but an archive ends with two: a header was overwritten"
            raise corrupt(key, offset - BLOCK, reason)
        if kind in _REFUSED:
            raise corrupt(key, offset, _REFUSED[kind])
        inside = True
        begin = offset if begin < 0 else begin
        if kind in _NO_DATA:
            if kind in _LINKS:
                _log_link(key, offset, own.get(b"path", name))
            own, begin = {}, -1
            continue
        describes = kind in _DESCRIBING
        if not describes:
            size, name = int(own.get(b"size", size)), own.get(b"path", name)
        if size > most:
            raise too_large(key, offset, f"member {name!r} has {size:,} bytes", most)
        is_file = not describes and kind != _DUMP_DIR and not name.endswith("/")
        if size and name.endswith("/") and kind != _DUMP_DIR and not describes:
            raise corrupt(key, offset, f"member {name!r} has a directory's name, but {size} bytes: it is damaged")
        padding = -size % BLOCK
        if is_file and turns is not None and not turns.wants(name):
            data = b""
            window.skip(size + padding)
        else:
            data = take(size, padding)
        if window.offset != offset + BLOCK + size + padding:
            if is_file:
                yield name, None, offset, begin
            raise corrupt(key, offset, f"the stream ends at byte {window.offset}, inside this member of {size} bytes")
        if describes:
            if kind == b"L":
                own[b"path"] = _text(data)
            elif kind != b"K":
                records = _pax(data, key, offset)
                if kind == b"g" and records:
                    raise corrupt(key, offset, _GLOBAL)
                own |= records
                if kind == b"x" and 0 < size <= BLOCK:
                    if len(checked) == _CHECKED:
                        checked.clear()
                    checked[block] = size, _TIME % size
            continue
        if is_file:
            yield name, data, offset, begin
        own, begin = {}, -1


def _plain(block: bytes) -> tuple[int, str] | None:
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


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _header(block: bytes, key: str | None, offset: int) -> tuple[bytes, int, str]:
    """Return kind, size and name in any header. Raises CorruptError if the block is not one, or is damaged."""
    if (plain := _plain(block)) is not None:
        return b"0", *plain
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        header = None
    if header is None or header.size < 0:
        raise corrupt(key, offset, "not a tar header, or a damaged one: its checksum or a number in it is wrong")
    # tarfile finds a prefix in GNU's own layout, too, which has other fields there, and leaves out the slash of a directory.
    has_prefix = block[345] and block[_MAGIC] == _USTAR
    name = header.name if has_prefix else _text(block[:100])
    return block[156:157], header.size, name + "/" * (has_prefix and header.isdir())


def _pax(data: bytes, key: str | None, offset: int) -> dict[bytes, str]:
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
            raise corrupt(key, offset, _SPARSE)
        if name in (b"path", b"size"):
            records[name] = value.decode("utf-8", "surrogateescape")
        position = stop
    return records


def _check_end(rest: bytes, offset: int, inside: bool, key: str | None) -> None:
    """Raise CorruptError if a stream must not end here, with `rest`, less than a block."""
    if inside:
        raise corrupt(key, offset, "the stream ends without the archive's end marker: it is cut off")
    if rest and not offset:
        raise corrupt(key, offset, f"{len(rest)} bytes are not a tar: it has at least {BLOCK}")
    if rest.strip(b"\0"):
        raise corrupt(key, offset, f"{len(rest)} bytes follow the archive's end that are not a tar header")


def _log_link(key: str | None, offset: int, name: str) -> None:
    """Log the first link that this process skips: data with one link has many."""
    if not _logged:
        _logged.add(name)
        _log.warning(
            "%sbyte %d: %r is a link, which holds no bytes: this and all other links are skipped; to store the files "
            "instead, write the archive with tar --dereference --hard-dereference",
            "" if key is None else f"object {key!r}, ",
            offset,
            name,
        )


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples as one archive, each field as the member `<__key__>.<field>`, and return their number.

    Owner, mode and time are fixed, so that the same samples become the same bytes.
    Raises SampleError if a sample would not be read back the same (see `members.py`), or has the same key as the one before.
    """
    before = None

    def encode(sample: Sample) -> list[bytes]:
        nonlocal before
        members = members_of(sample)
        if sample[KEY] == before:
            raise ValueError("the sample before has the same __key__, and both would be read as one; give each its own")
        before = sample[KEY]
        pieces = []
        for name, data in members:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            pieces += [header.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape"), data, bytes(-len(data) % BLOCK)]
        return pieces

    count = write_each(encode, stream, samples)
    stream.write(2 * _ZEROS)
    return count


FORMAT = Format(
    name="tar",
    content_types=("application/x-tar",),
    sample="a field for each extension of a group of members",
    read=_read,
    begins=lambda head: head[_MAGIC][:5] == b"ustar",
    head=BLOCK,
    write=write,
    named=True,
    holds="fields",
    fit=of_files,
    ending=".tar",
    example=lambda number, data: {KEY: f"{number:06d}", "bin": data},
)
