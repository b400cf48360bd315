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
import tarfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from sagemaker_channels.errors import CorruptError, corrupt, foreign
from sagemaker_channels.formats import tar_header
from sagemaker_channels.formats.cursor import Cursor, go_to
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.members import Member, Turns, grouped, members_of, of_files
from sagemaker_channels.formats.tar_header import BLOCK, MAGIC, SPARSE
from sagemaker_channels.formats.window import Window, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import KEY, ByteStream, Sample

_log = logging.getLogger(__name__)
_logged: set[str] = set()  # the link that has been logged
_ZEROS = bytes(BLOCK)
_EMPTY_BYTES = 20 * BLOCK  # of zeros, an empty archive as tar writes it
_CHECKED = 16  # extended headers that are remembered
_TIME = b"%d mtime="  # how a pax record with the time begins, in an extended header of so many bytes
_LINKS = b"12"
_NO_DATA = b"123456V"  # links, devices, directories, FIFOs, a volume's label: no content follows, whatever their size
_DESCRIBING_ONE = b"xXLK"  # their content describes the next member; X: pax records as Solaris writes them
_DESCRIBING = b"g" + _DESCRIBING_ONE  # or all that follow
_DUMP_DIR = b"D"  # a directory's listing, which GNU tar adds with --listed-incremental
_GLOBAL = "an extended header that gives all members one path or one size; write the archive with one for each member"
_REFUSED = {
    b"S": SPARSE,
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
    archives = _Archives(window, key, turns)
    while archives.are_open:
        yield from archives.plain_files()
        yield from archives.next_header()


class _Archives:
    def __init__(self, window: Window, key: str | None, turns: Turns | None) -> None:
        self.are_open = True
        self._window, self._key, self._turns = window, key, turns
        self._most = max_sample_bytes()
        self._is_first = key is not None and not window.offset  # whether an object's beginning is read
        self._kind = b""  # of the last header
        self._own: dict[bytes, str] = {}  # path and size of the next member
        self._begin = -1  # of the headers that describe the next member
        self._inside = False  # of an archive: its end marker is still to come
        self._is_lone = False  # The last block was zeros, and the one before was not: the first half of an end marker.
        # Checked extended headers, with their content's size, and how it begins if it is nothing but the time. Most are
        # equal to one before, but webdataset's have a few sizes, since its times have as many digits as they need.
        self._checked: dict[bytes, tuple[int, bytes]] = {}

    def plain_files(self) -> Iterator[Member]:
        """Yield the next files that are whole in the window, and described by nothing but their time: nearly all."""
        if self._own or self._is_lone or self._begin >= 0:
            return
        window, turns = self._window, self._turns
        view, place, end = window.view, window.position, window.end
        while True:
            header = place
            block = view[header : header + BLOCK].tobytes()
            if described := self._checked.get(block):
                size, time_alone = described
                content = view[header + BLOCK : header + BLOCK + size].tobytes()
                if not (content.startswith(time_alone) and content.endswith(b"\n")):
                    return
                header += 2 * BLOCK
                block = view[header : header + BLOCK].tobytes()
            plain = tar_header.plain(block) if header + BLOCK <= end else None
            if plain is None:
                return
            size, name = plain
            stop = header + BLOCK + size
            after = stop + (-size % BLOCK)
            if after > end or name.endswith("/"):
                return
            self._kind, self._inside = b"0", True
            begin, window.position = window.before + place, after
            data = view[header + BLOCK : stop].tobytes() if turns is None or turns.wants(name) else b""
            yield name, data, window.before + header, begin
            place = after

    def next_header(self) -> Iterator[Member]:
        """Take the next block, and what belongs to it. Raises CorruptError if an archive must not go on with it."""
        offset = self._window.offset
        block = self._window.take(BLOCK)
        if len(block) < BLOCK:
            _check_end(block, offset, self._inside, self._key)
            self.are_open = False
        elif block == _ZEROS:
            yield from self._zeros(offset)
        else:
            yield from self._header(block, offset)

    def _zeros(self, offset: int) -> Iterator[Member]:
        if self._inside and self._kind in _DESCRIBING_ONE:
            raise corrupt(
                self._key, offset, "the archive ends after an extended header: the member it describes is missing"
            )
        if self._is_first and not self._kind and offset >= _EMPTY_BYTES:
            reason = f"more than {offset:,} bytes of zeros and no member: the file was not written whole"
            raise corrupt(self._key, 0, reason)
        if self._turns is not None:
            self._turns.end_group()
        if self._inside:
            yield None, b"", offset + BLOCK, offset + BLOCK
        self._is_lone, self._inside, self._begin = self._inside, False, -1

    def _header(self, block: bytes, offset: int) -> Iterator[Member]:
        is_known, key = block in self._checked, self._key
        kind, size, name = (b"x", self._checked[block][0], "") if is_known else tar_header.parsed(block, key, offset)
        if self._is_lone:
            reason = "a single block of zeros, but an archive ends with two: a header was overwritten"
            raise corrupt(key, offset - BLOCK, reason)
        if kind in _REFUSED:
            raise corrupt(key, offset, _REFUSED[kind])
        self._kind, self._inside = kind, True
        self._begin = offset if self._begin < 0 else self._begin
        if kind in _DESCRIBING:
            self._describe(block, self._content(name, size, offset), offset)
            return
        if kind not in _NO_DATA:
            size, name = int(self._own.get(b"size", size)), self._own.get(b"path", name)
            yield from self._file(name, size, offset)
        elif kind in _LINKS:
            _log_link(key, offset, self._own.get(b"path", name))
        self._own, self._begin = {}, -1

    def _describe(self, block: bytes, data: bytes, offset: int) -> None:
        """Keep what an extended header says of the next member."""
        kind = self._kind
        if kind == b"L":
            self._own[b"path"] = tar_header.text(data)
        elif kind != b"K":
            records = tar_header.pax(data, self._key, offset)
            if kind == b"g" and records:
                raise corrupt(self._key, offset, _GLOBAL)
            self._own |= records
            if kind == b"x" and 0 < len(data) <= BLOCK:
                if len(self._checked) == _CHECKED:
                    self._checked.clear()
                self._checked[block] = len(data), _TIME % len(data)

    def _file(self, name: str, size: int, offset: int) -> Iterator[Member]:
        is_folder, is_listing = name.endswith("/"), self._kind == _DUMP_DIR
        if is_folder and size and not is_listing:
            raise corrupt(self._key, offset, f"member {name!r} has a directory's name, but {size} bytes: it is damaged")
        is_file = not (is_folder or is_listing)
        is_wanted = is_file and (self._turns is None or self._turns.wants(name))
        try:
            data = self._content(name, size, offset, is_wanted=is_wanted)
        except CorruptError:
            if is_file:
                yield name, None, offset, self._begin
            raise
        if is_file:
            yield name, data, offset, self._begin

    def _content(self, name: str, size: int, offset: int, *, is_wanted: bool = True) -> bytes:
        """Return a member's content; nothing if it is not wanted. Raises CorruptError if it is cut or too large."""
        if size > self._most:
            raise too_large(self._key, offset, f"member {name!r} has {size:,} bytes", self._most)
        window, padding, data = self._window, -size % BLOCK, b""
        if is_wanted:
            data = window.take(size, padding)
        else:
            window.skip(size + padding)
        if window.offset != offset + BLOCK + size + padding:
            reason = f"the stream ends at byte {window.offset}, inside this member of {size} bytes"
            raise corrupt(self._key, offset, reason)
        return data


def _check_end(rest: bytes, offset: int, inside: bool, key: str | None) -> None:
    """Raise CorruptError if a stream must not end here, with `rest`, less than a block."""
    if inside:
        raise corrupt(key, offset, "the stream ends without the archive's end marker: it is cut off")
    if rest and not offset:
        raise foreign("a tar", key, offset, f"it has {len(rest)} bytes, fewer than {BLOCK}")
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
    begins=lambda head: head[MAGIC][:5] == b"ustar",
    head=BLOCK,
    write=write,
    named=True,
    holds="fields",
    fit=of_files,
    ending=".tar",
    example=lambda number, data: {KEY: f"{number:06d}", "bin": data},
)
