"""tar as a stream: groups of neighbouring members, as in WebDataset, are the samples (the rule is in `members.py`).

Names keep their case. Directories, links and devices are skipped. The first skipped link is logged: it has no bytes in a stream,
only the name of a file, which may have passed long ago. Python's tarfile is not used: it is four times slower than a FIFO, reads
only the first of joined archives (a Pipe joins them) and stops silently at damage. Here every header's checksum is verified, and
an archive without its end marker is an error. Read: ustar, pax (path, size), GNU long names, gzip around all of it; refused:
sparse files and volumes, which a stream cannot restore.

Source: POSIX.1-2017 pax; GNU tar manual, "Basic Tar Format". Writing is in `tar_write.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from sagemaker_channels.errors import corrupt
from sagemaker_channels.formats.archives import tar_write
from sagemaker_channels.formats.archives.members import Member, Turns, grouped
from sagemaker_channels.formats.archives.tar_headers import SPARSE, TIME, is_header, parse, pax, text
from sagemaker_channels.formats.archives.tar_write import BLOCK
from sagemaker_channels.formats.cursor import Cursor, go_to
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.gunzip import unzipped
from sagemaker_channels.formats.sizes import max_sample_bytes, too_large
from sagemaker_channels.formats.window import Window
from sagemaker_channels.sample import KEY, ByteStream, Sample

_log = logging.getLogger(__name__)
_logged: set[str] = set()  # the link that has been logged
_ZEROS = bytes(BLOCK)
_CHECKED = 16  # extended headers that are remembered
_PLAIN = b"0"  # a file
_LINKS = b"12"
_NO_DATA = b"123456V"  # links, devices, directories, FIFOs, a volume's label: no content follows, whatever their size
_EXTENDED = b"xX"  # pax records; the second as Solaris writes them
_DESCRIBING_ONE = _EXTENDED + b"LK"  # their content describes the next member
_DESCRIBING = b"g" + _DESCRIBING_ONE  # or all that follow
_LONE = "a single block of zeros, but an archive ends with two: a header was overwritten"
_NO_MEMBER = "the archive ends after an extended header: the member it describes is missing"
_GLOBAL = (
    "an extended header that gives all members one path or one size; write the archive with headers for each member"
)
_DUMP_DIR = b"D"  # GNU: a directory's listing
_REFUSED = {
    b"S": SPARSE,
    b"M": "the continuation of a file from another volume, which cannot be read from a stream: write it as a plain file",
}


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples of one or more joined archives; see the module for what a sample is. Positions are bytes."""
    go_to(stream, cursor.start, key)
    turns = Turns(*cursor.turns) if cursor.turns[1] > 1 else None
    window = Window(stream, cursor.start, skips=cursor.turns[1] > 3)
    return grouped(_members(window, key, turns), key, cursor)


def _is_own(head: bytes) -> bool:
    """Return whether a stream with these first bytes is a tar of POSIX.1-1988 or later."""
    return head.startswith(b"ustar", 257) or is_header(head)


def _members(window: Window, key: str | None, turns: Turns | None) -> Iterator[Member]:
    """Yield every file of a stream of archives, without the content of samples whose turn it is not."""
    own: dict[str, str] = {}  # for the next member, with GNU's long name
    inside = False  # of an archive: its end marker is still to come
    is_lone = False  # the last block was zeros, and the one before was not: the first half of an end marker
    begin = -1  # of the headers that describe the next member
    # Extended headers that have been checked, with their content's size, and how it begins if it is nothing but the time. Most are
    # equal to one before, but webdataset's have a few sizes, since the fractions of its times have as many digits as they need.
    checked: dict[bytes, tuple[int, bytes]] = {}
    kind = b""
    view, take, most = window.view, window.take, max_sample_bytes()
    while True:
        # Plain files that are whole in the window, and described by nothing but their time: nearly all, so without a call for each
        # block.
        place, end = window.position, window.end
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
            if header + BLOCK > end or block[156] != _PLAIN[0]:
                break
            kind, size, name = parse(block, key, window.before + header)
            stop = header + BLOCK + size
            after = stop + (-size % BLOCK)
            if after > end or name.endswith("/"):
                break
            inside, begin = True, window.before + place
            window.position = place = after
            data = view[header + BLOCK : stop].tobytes() if turns is None or turns.wants(name) else b""
            yield name, data, window.before + header, begin
            begin = -1
        offset = window.offset
        block = take(BLOCK)
        if block in checked and not is_lone:
            kind, size = b"x", checked[block][0]
        elif len(block) < BLOCK:
            _check_end(block, offset, inside, key)
            return
        elif block == _ZEROS:
            if inside and kind in _DESCRIBING_ONE:
                raise corrupt(key, offset, _NO_MEMBER)
            offset += BLOCK
            is_lone = inside
            if turns is not None:
                turns.end_group()
            if inside:
                yield None, b"", offset, offset
            inside, begin = False, -1
            continue
        else:
            kind, size, name = parse(block, key, offset)
            if is_lone:
                raise corrupt(key, offset - BLOCK, _LONE)
            if kind == _PLAIN:
                pass
            elif kind == b"x":
                if len(checked) == _CHECKED:
                    checked.clear()
                if 0 < size <= BLOCK:
                    checked[block] = size, TIME % size
            elif kind in _REFUSED:
                raise corrupt(key, offset, _REFUSED[kind])
        inside = True
        if begin < 0:
            begin = offset
        is_plain = kind == _PLAIN
        if not is_plain and kind in _NO_DATA:
            if kind in _LINKS:
                _log_link(key, offset, own.get("path") or name)
            own, begin = {}, -1
            offset += BLOCK
            continue
        describes = not is_plain and kind in _DESCRIBING
        if own and not describes:
            size = int(own.get("size") or size)
            name = own.get("path") or name
        if size > most:
            raise too_large(key, offset, f"member {name!r} has {size:,} bytes", most)
        padding = -size % BLOCK
        is_file = not describes and kind != _DUMP_DIR and not name.endswith("/")
        if is_file and turns is not None and not turns.wants(name):
            window.skip(size + padding)
            data = b""
        else:
            data = take(size, padding)
        header, offset = offset, offset + BLOCK + size + padding
        if window.before + window.position != offset:
            if is_file:
                yield name, None, header, begin
            raise corrupt(key, header, f"the stream ends at byte {window.offset}, inside this member of {size} bytes")
        if describes:
            if kind in _EXTENDED:
                if records := pax(data, key, header):
                    own |= records
            elif kind == b"g":
                if pax(data, key, header):
                    raise corrupt(key, header, _GLOBAL)
            elif kind == b"L":
                own["path"] = text(data)
            continue
        if name.endswith("/"):  # so archives older than ustar mark directories
            if size and kind != _DUMP_DIR:
                raise corrupt(key, header, f"member {name!r} has a directory's name, but {size} bytes: it is damaged")
        elif kind != _DUMP_DIR:
            yield name, data, header, begin
        if own:
            own = {}
        begin = -1


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


FORMAT = Format(
    name="tar",
    content_types=("application/x-tar",),
    sample="a field for each extension of a group of members",
    read=unzipped(_read, _is_own, BLOCK),
    write=tar_write.write,
    ending=".tar",
    example=lambda number, data: {KEY: f"{number:06d}", "bin": data},
)
