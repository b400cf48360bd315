"""Pages of objects: their form in a file, and how they are put in order.

A page is a header of four uint32 (objects, bytes of keys, bytes of the next page's token, 1 in the last page), then the objects'
sizes and versions (uint64 each), the ends of their keys (uint32), the keys, each with a NUL after it, and the token.
"""

from __future__ import annotations

import hashlib
import operator
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge
from itertools import accumulate, groupby, islice, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from sagemaker_channels.errors import ChannelError, no_room

HEADER = struct.Struct("<IIII")
END = struct.Struct("<I")
_PAGE = 1000  # objects
_RUN = 100_000  # objects that are sorted in memory: 20 MB


class Listed(NamedTuple):
    """An object in a listing."""

    key: str  # the whole key, as in the bucket
    size: int  # bytes
    version: int = 0  # the `version_of` its ETag; 0 if unknown


class UnsuitableError(Exception):
    """The store cannot be listed in this way, but perhaps page by page."""


def version_of(etag: str) -> int:
    """Return a number of 64 bits for an ETag; 0 if it is empty."""
    return versions_of([etag])[0]


def versions_of(etags: Sequence[str]) -> Sequence[int]:
    """Return the versions of many ETags."""
    plain = [etag.strip('"') for etag in etags]
    if {*map(len, plain)} == {32}:  # MD5s, as most ETags are: their first half
        with suppress(ValueError):  # They only have its length.
            return struct.unpack(f"<{len(plain)}Q", bytes.fromhex("".join([etag[:16] for etag in plain])))
    return [_version(etag) for etag in plain]


def _version(etag: str) -> int:
    if len(etag) == 32:
        with suppress(ValueError):  # It only has an MD5's length.
            return int.from_bytes(bytes.fromhex(etag[:16]), "little")
    return int.from_bytes(hashlib.blake2b(etag.encode(), digest_size=8).digest(), "little") if etag else 0


class Page(NamedTuple):
    """Some objects, by column."""

    keys: Sequence[bytes]
    sizes: Sequence[int]
    versions: Sequence[int]

    def follows(self, last: bytes) -> bool:
        """Return whether its keys are in order, each once, and after this one."""
        keys = self.keys
        return not keys or (keys[0] > last and all(map(operator.lt, keys, keys[1:])))

    def up_to(self, count: int) -> Page:
        """Return the first objects."""
        return Page(self.keys[:count], self.sizes[:count], self.versions[:count])


def page_of(objects: Iterable[Listed]) -> Page:
    """Return objects as a page."""
    found = list(objects)
    return Page(
        [item.key.encode("utf-8", "surrogateescape") for item in found],
        [item.size for item in found],
        [item.version for item in found],
    )


def encode(page: Page, token: str | None = "") -> bytes:
    """Return a page in the file's form. Its `token` is None if it is the last one."""
    ends = list(accumulate(map((1).__add__, map(len, page.keys)), initial=0))
    count, after = len(page.keys), (token or "").encode()
    numbers = [0] * (2 * count)
    numbers[::2], numbers[1::2] = page.sizes, page.versions
    return b"".join(
        [
            HEADER.pack(count, ends[-1], len(after), token is None),
            struct.pack(f"<{2 * count}Q", *numbers),
            struct.pack(f"<{count + 1}I", *ends),
            b"\0".join([*page.keys, b""]),
            after,
        ]
    )


def decode(data: bytes, count: int) -> Page:
    """Return a page of `count` objects, without its header."""
    numbers = struct.unpack_from(f"<{2 * count}Q", data)
    first = 16 * count + 4 * (count + 1)
    ends = [first + end for end in struct.unpack_from(f"<{count + 1}I", data, 16 * count)]
    keys = [data[start : end - 1] for start, end in pairwise(ends)]
    return Page(keys, numbers[::2], numbers[1::2])


def write(file: IO[bytes], data: bytes, folder: Path) -> None:
    """Write to a file. Raises ChannelError if the folder has no room."""
    try:
        while data := data[file.write(data) :]:
            pass  # A full disk takes a part first.
    except OSError as error:
        raise no_room("the listing of a channel", folder, error.strerror) from error


def write_all(path: Path, data: Iterable[bytes]) -> None:
    """Write a file whole, in place of the one at the path. Raises ChannelError if there is no room."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        with open(new, "xb", opener=partial(os.open, mode=0o600)) as file:
            for piece in data:
                write(file, piece, new.parent)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def open_file(path: Path) -> int:
    """Open a listing's file, or make one. Raises ChannelError if it belongs to another user."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ChannelError(f"{path} cannot be opened: {error.strerror}; set TMPDIR to a folder of your own") from error
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise ChannelError(f"{path} belongs to another user; set TMPDIR to a folder of your own")
    return descriptor


def in_order(pages: Iterable[Page], folder: Path) -> Iterator[bytes]:
    """Yield pages that were listed in any order, encoded, in the order of their keys.

    Raises:
        UnsuitableError: Two pages overlap.
    """
    found: list[tuple[bytes, bytes, int, int]] = []  # first and last key, offset and length
    with TemporaryFile(dir=folder, buffering=0) as file:
        offset = 0
        for page in pages:
            if page.keys:
                data = encode(page)
                write(file, data, folder)
                found.append((page.keys[0], page.keys[-1], offset, len(data)))
                offset += len(data)
        found.sort()
        if any(one[1] >= other[0] for one, other in pairwise(found)):
            raise UnsuitableError("pages overlap")
        for _, _, offset, length in found:
            file.seek(offset)
            yield file.read(length)


def sort(pages: Iterable[Page], folder: Path) -> Iterator[Page]:
    """Yield the objects of pages in any order sorted by their keys, each key once, from a file of sorted runs."""
    objects = (item for page in pages for item in zip(*page, strict=True))
    runs: list[tuple[int, int]] = []
    with TemporaryFile(dir=folder) as file:
        while run := sorted(islice(objects, _RUN)):
            start = file.tell()
            for page in _pages(iter(run)):
                write(file, encode(page), folder)
            runs.append((start, file.tell()))
        merged = merge(*(_read_run(file, *run) for run in runs))
        yield from _pages(next(same) for _, same in groupby(merged, key=operator.itemgetter(0)))


def _pages(objects: Iterator[tuple[bytes, int, int]]) -> Iterator[Page]:
    while page := list(islice(objects, _PAGE)):
        yield Page(*zip(*page, strict=True))


def _read_run(file: IO[bytes], start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    while start < end:
        file.seek(start)
        count, key_bytes, _, _ = HEADER.unpack(file.read(HEADER.size))
        page = decode(file.read(20 * count + 4 + key_bytes), count)
        start = file.tell()
        yield from zip(*page, strict=True)
