"""tar, read as it streams by: groups of members, as WebDataset has them, are the samples.

Members that share their name up to the first dot of the base name, neighbours in the archive, are one sample; what follows
the dot is the field (`a/1.seg.png` is field `seg.png` of sample `a/1`). A member without a dot is field `data`. Names stay as
they are written, case included. What is no file (directories, links, devices) is passed over.

Python's tarfile is not used: it costs four times what a FIFO delivers, reads only the first of joined archives (a Pipe
joins them) and ends quietly where an archive is cut or damaged. Here every header's checksum is verified, an archive
ends with its end marker or is an error, and further archives may follow. Read: ustar, pax (path, size), GNU long
names, gzip around it all; refused: sparse files and volumes, which a stream cannot give back whole.

Source: POSIX.1-2017 pax; GNU tar manual, "Basic Tar Format". Writing is in `tar_write.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from entrypoints.errors import CorruptError
from entrypoints.records import gunzip
from entrypoints.records.cursor import Cursor, go_to
from entrypoints.records.window import Window
from entrypoints.sample import DATA, KEY, ByteStream, Sample

BOUNDARIES = True

BLOCK = 512
_ZEROS = bytes(BLOCK)
_NO_DATA = b"123456V"  # links, devices, directories, FIFOs, a volume's label: nothing follows, whatever their size says
_DESCRIBING = b"xXgLK"  # their content describes the next member, or (g) all that follow
_DUMP_DIR = b"D"  # GNU: a directory's listing
_REFUSED = {b"S": "a sparse file", b"M": "the continuation of a file from another volume"}


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """The samples of a stream of one or more archives, gzip-compressed or not; see the module for what a sample is.

    Raises CorruptError, naming the offset (of the uncompressed stream), for what is cut or damaged and for what a stream
    cannot give back. Positions are bytes, below 0 where one must read from the beginning to get there.
    """
    cursor = cursor or Cursor()
    sample: Sample = {}
    for name, data, offset, position in members(stream, key, cursor.start):
        if name is None:  # the end of an archive: groups do not reach into the next
            if sample:
                cursor.position = position
                yield sample
                sample = {}
            continue
        slash = name.rfind("/") + 1
        dot = name.find(".", slash)
        group, field = (name, DATA) if dot < 0 else (name[:dot], name[dot + 1 :])
        if sample and sample[KEY] != group:
            cursor.position = position
            yield sample
            sample = {}
        if not sample:
            sample[KEY] = group
        if field in sample:
            raise _corrupt(key, offset, f"member {name!r} gives field {field!r} of sample {group!r} a second time")
        sample[field] = data


def members(stream: ByteStream, key: str | None = None, start: int = 0) -> Iterator[tuple[str | None, bytes, int, int]]:
    """Every file of a stream of archives: name, content, offset of its header, and the position that leads back to it.

    After each archive comes a name of None, with the position of what follows. `start` is such a position.
    """
    if start > 0:
        go_to(stream, start, key)
    window = Window(stream, max(start, 0))
    compressed = start <= 0 and window.peek(len(gunzip.MAGIC)) == gunzip.MAGIC
    if compressed:
        window = Window(gunzip.Gunzip(window, key))
    every: dict[str, str] = {}  # pax records for the rest of the archive
    own: dict[str, str] = {}  # for the next member; GNU's long name is put here too
    inside = False  # of an archive: its end marker is still to come
    begin = -1  # of the headers that describe the next member
    while True:
        offset = window.offset
        header = window.take(BLOCK)
        if len(header) < BLOCK:
            if inside:
                raise _corrupt(key, offset, "the stream ends without the archive's end marker: it is cut off")
            if header.strip(b"\0"):
                raise _corrupt(key, offset, f"{len(header)} bytes follow the archive's end that are no tar header")
            if offset < -start:
                raise _corrupt(key, offset, f"the stream is shorter than {-start} bytes, where reading should go on")
            return
        if header == _ZEROS:
            if own:
                raise _corrupt(
                    key, offset, "the archive ends after an extended header: the member it describes is missing"
                )
            if inside:
                yield None, b"", offset, -window.offset if compressed else window.offset
            inside, every, begin = False, {}, -1
            continue
        inside = True
        _check(header, key, offset)
        if begin < 0:
            begin = offset
        kind = header[156:157]
        if kind in _REFUSED:
            raise _corrupt(
                key, offset, f"{_REFUSED[kind]}, which cannot be read from a stream: write it as a plain file"
            )
        if kind in _NO_DATA:
            own, begin = {}, -1
            continue
        described = None if kind in _DESCRIBING else own.get("size") or every.get("size")
        size = int(described) if described else _number(header[124:136], key, offset)
        data = window.take(size)
        if len(data) < size or window.skip(-size % BLOCK) < -size % BLOCK:
            raise _corrupt(
                key, offset, f"the stream ends at byte {window.offset}, inside of this member of {size} bytes"
            )
        if kind not in _DESCRIBING:
            name = own.get("path") or every.get("path") or _name(header)
            # Archives older than ustar mark directories by a slash.
            if kind != _DUMP_DIR and not name.endswith("/") and begin >= -start:
                # Who begins in the middle does not see what has been said for the rest of the archive.
                yield name, data, offset, -begin if compressed or every else begin
            own, begin = {}, -1
        elif kind == b"g":
            every |= _pax(data, key, offset)
        elif kind == b"L":
            own["path"] = _text(data)
        elif kind != b"K":
            own |= _pax(data, key, offset)


def _check(header: bytes, key: str | None, offset: int) -> None:
    """Compares a header's checksum: the sum of its bytes, with blanks for the checksum itself."""
    field = header[148:156]
    # Summing in Python costs by the byte; Adler-32 is in its lower half 1 + the sum, modulo 65,521.
    total = (zlib.adler32(header) & 0xFFFF) - 1 - sum(field) + 8 * 32
    try:
        stored = int(field.strip(b" \0") or b"-1", 8)
    except ValueError:
        stored = -1
    if (stored - total) % 65521:
        # Some old writers summed signed bytes.
        if (stored - total + 256 * sum(byte > 127 for byte in header[:148] + header[156:])) % 65521 == 0:
            return
        raise _corrupt(key, offset, "not a tar header, or a damaged one: its checksum is wrong")


def _number(field: bytes, key: str | None, offset: int) -> int:
    """A size: octal digits, or binary where the first bit is set (GNU, for 8 GiB and more)."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & (1 << (8 * len(field) - 1)) - 1
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise _corrupt(key, offset, f"the size {field!r} is no octal number")
    return int(digits or b"0", 8)


def _name(header: bytes) -> str:
    name = _text(header[:100])
    if header[257:263] == b"ustar\0" and header[345]:  # GNU's own layout keeps other things in the prefix's place
        return f"{_text(header[345:500])}/{name}"
    return name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _pax(data: bytes, key: str | None, offset: int) -> dict[str, str]:
    """The records of an extended header, each `<length> <name>=<value>\\n`, that matter here: path and size."""
    records = {}
    position = 0
    while position < len(data):
        digits, blank, _ = data[position : position + 24].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        name, equals, value = data[position + len(digits) + 1 : position + length].partition(b"=")
        if position + length > len(data) or not equals or not value.endswith(b"\n"):
            raise _corrupt(key, offset, f"damaged extended header at its byte {position}")
        if name.startswith(b"GNU.sparse."):
            raise _corrupt(
                key, offset, f"{_REFUSED[b'S']}, which cannot be read from a stream: write it as a plain file"
            )
        if name == b"path":
            records["path"] = value[:-1].decode("utf-8", "surrogateescape")
        elif name == b"size":
            if not value[:-1].isdigit():
                raise _corrupt(key, offset, f"the size {value[:-1]!r} is no number")
            records["size"] = value[:-1].decode()
        position += length
    return records


def _corrupt(key: str | None, offset: int, reason: str) -> CorruptError:
    place = f"object {key!r}, " if key is not None else ""
    return CorruptError(f"{place}byte {offset}: {reason}")
