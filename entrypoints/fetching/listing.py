"""The objects under a prefix, listed once per host and job for all its ranks and workers.

S3 lists a thousand keys per request, one request after the other, so sixteen workers that each list a million keys would make
16,000 requests per epoch. Here the first process that needs a page requests it and appends it to a file, where the others read it.
Later epochs list nothing and see the same objects.

The file is in the temporary folder, one per job, prefix and store. Its pages stay in the kernel's cache: a million keys cost a
process less than 1 MB, and 70 to 110 MB on disk. A job is identified by the process that began to read, or by torchrun's.

A page is a header of four uint32 (objects, bytes of keys, bytes of the next page's token, 1 in the last page), then the objects'
sizes and versions (uint64 each), the ends of their keys (uint32), the keys, each with a NUL after it, and the token.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import struct
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from entrypoints.errors import ChannelError, no_room
from entrypoints.fetching.items import Items
from entrypoints.job.process_identity import start_time

_HEADER = struct.Struct("<IIII")
_END = struct.Struct("<I")
_ENDS = struct.Struct("<II")
_NUMBERS = struct.Struct("<QQ")
_PREFIX = "launcher-listing-"  # of the files' names


class Listed(NamedTuple):
    """An object in a listing."""

    key: str  # the whole key, as in the bucket
    size: int  # bytes
    version: int = 0  # the `version_of` its ETag; 0 if unknown


def version_of(etag: str) -> int:
    """Return a number of 64 bits for an ETag; 0 if it is empty."""
    plain = etag.strip('"')
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "little") if plain else 0


# Requests the page of a token (None: the first page), and returns its objects and the token of the next page (None: no more).
NextPage = Callable[[str | None], tuple[Iterable[Listed], str | None]]


class _Page(NamedTuple):
    start: int  # the number of its first object in the listing
    offset: int  # its header's offset in the file
    objects: int
    key_bytes: int


class Listing(Items[Listed]):
    """The objects in the order of their keys: a sequence that grows as it is read.

    `len` and negative indices list to the end first. It pickles as the file's path. An access that needs another page raises what
    `next_page` raises.
    """

    def __init__(self, path: Path, next_page: NextPage) -> None:
        self._path = path
        self._next_page = next_page
        self._begin(_open(path))

    def _begin(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._closing = weakref.finalize(self, os.close, descriptor)
        self._pages: list[_Page] = []
        self._scanned = 0  # bytes of the file in `_pages`
        self._count = 0  # objects in `_pages`
        self._digests = [0]  # of all keys before a page, as far as they are known
        self._token: str | None = None
        self._complete = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Listing, (self._path, self._next_page)

    def __len__(self) -> int:
        while self._grow():
            pass
        return self._count

    def __iter__(self) -> Iterator[Listed]:
        number = 0
        while number < len(self._pages) or self._grow():
            if number < len(self._pages):
                yield from self._read_page(self._pages[number])
                number += 1

    def _item(self, index: int) -> Listed:
        while index >= self._count and self._grow():
            pass
        if not 0 <= index < self._count:
            raise IndexError(index)
        page = self._pages[bisect_right(self._pages, index, key=lambda page: page.start) - 1]
        number = index - page.start
        numbers = page.offset + _HEADER.size
        ends = numbers + _NUMBERS.size * page.objects
        size, version = _NUMBERS.unpack(self._pread(_NUMBERS.size, numbers + _NUMBERS.size * number))
        start, end = _ENDS.unpack(self._pread(_ENDS.size, ends + 4 * number))
        key = self._pread(end - start, ends + 4 * (page.objects + 1) + start)
        return Listed(key[:-1].decode("utf-8", "surrogateescape"), size, version)

    def digest(self, count: int) -> int:
        """See Items. Each page is read once for it."""
        if count == 0:
            return 0
        self._item(count - 1)
        number = bisect_right(self._pages, count - 1, key=lambda page: page.start) - 1
        while len(self._digests) <= number:
            page = self._pages[len(self._digests) - 1]
            self._digests.append(crc32(self._keys(page, page.objects), self._digests[-1]))
        return crc32(self._keys(self._pages[number], count - self._pages[number].start), self._digests[number])

    def _keys(self, page: _Page, count: int) -> bytes:
        """Return the keys of a page's first `count` objects."""
        ends = page.offset + _HEADER.size + _NUMBERS.size * page.objects
        (end,) = _END.unpack(self._pread(_END.size, ends + _END.size * count))
        return self._pread(end, ends + _END.size * (page.objects + 1))

    def _read_page(self, page: _Page) -> Iterator[Listed]:
        numbers_end = _NUMBERS.size * page.objects
        keys_start = numbers_end + 4 * (page.objects + 1)
        data = self._pread(keys_start + page.key_bytes, page.offset + _HEADER.size)
        numbers = struct.iter_unpack(_NUMBERS.format, data[:numbers_end])
        ends = struct.unpack_from(f"<{page.objects + 1}I", data, numbers_end)
        for number, (size, version) in enumerate(numbers):
            key = data[keys_start + ends[number] : keys_start + ends[number + 1] - 1]
            yield Listed(key.decode("utf-8", "surrogateescape"), size, version)

    def _grow(self) -> bool:
        """Add one more page, and request it if no process has yet; False after the last."""
        if self._complete:
            return False
        if self._scan():
            return True
        # A descriptor of its own, because forked processes would share the lock of a common one.
        descriptor = _open(self._path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor)):
                # A rank that has ended removed the file: the others continue with a new one.
                self._closing()
                self._begin(_open(self._path))  # not a duplicate, which would keep the lock
            if self._scan():  # Another process has added it meanwhile.
                return True
            objects, token = self._next_page(self._token)
            page = _encode(list(objects), token)
            try:
                written = os.write(descriptor, page)
            except OSError as error:
                raise no_room("the listing of a channel", self._path.parent, error.strerror) from error
            if written != len(page):
                os.ftruncate(descriptor, self._scanned)
                raise no_room("the listing of a channel", self._path.parent, f"{len(page):,} bytes more")
        finally:
            os.close(descriptor)
        return self._scan()

    def _scan(self) -> bool:
        header = self._pread(_HEADER.size, self._scanned)
        if len(header) < _HEADER.size:
            return False
        count, key_bytes, token_bytes, last = _HEADER.unpack(header)
        length = _HEADER.size + _NUMBERS.size * count + 4 * (count + 1) + key_bytes
        token = self._pread(token_bytes, self._scanned + length)
        if os.fstat(self._descriptor).st_size < self._scanned + length + token_bytes:
            return False  # It is being written.
        self._pages.append(_Page(self._count, self._scanned, count, key_bytes))
        self._scanned += length + token_bytes
        self._count += count
        self._token = token.decode()
        self._complete = bool(last)
        return True

    def _pread(self, count: int, offset: int) -> bytes:
        return os.pread(self._descriptor, count, offset)


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ChannelError(f"{path} cannot be opened: {error.strerror}; set TMPDIR to a folder of your own") from error
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise ChannelError(f"{path} belongs to another user; set TMPDIR to a folder of your own")
    return descriptor


def _encode(objects: Sequence[Listed], token: str | None) -> bytes:
    keys = [item.key.encode("utf-8", "surrogateescape") + b"\0" for item in objects]
    ends = list(accumulate(map(len, keys), initial=0))
    after = (token or "").encode()
    header = _HEADER.pack(len(keys), ends[-1], len(after), token is None)
    numbers = b"".join(_NUMBERS.pack(item.size, item.version) for item in objects)
    return b"".join([header, numbers, struct.pack(f"<{len(ends)}I", *ends), *keys, after])


_job: str | None = None  # of this process and its children


def job() -> str:
    """Return this job's identifier on this machine: the same in all ranks that torchrun starts on a host.

    The process that begins to read makes it; its workers get it by fork or by `join_job`.
    """
    global _job
    if _job is None:
        started_by = os.getppid() if "LOCAL_RANK" in os.environ else os.getpid()
        _job = f"{started_by}-{start_time(started_by)}"
        if os.environ.get("LOCAL_RANK", "0") == "0":
            atexit.register(_remove, _job, os.getpid())
            _remove_leftovers()
    return _job


def join_job(name: str) -> None:
    """Set the job of a process that was started by spawn."""
    global _job
    _job = name


def shared_listing(store: Sequence[str | None], next_page: NextPage) -> Listing:
    """Return this job's listing of a store, and start it if no process has.

    Args:
        store: What identifies the listing: endpoint, prefix and so on.
        next_page: Requests a page.
    """
    name = hashlib.sha256(repr(store).encode()).hexdigest()[:16]
    return Listing(Path(tempfile.gettempdir(), f"{_PREFIX}{job()}-{name}"), next_page)


def _remove_leftovers() -> None:
    """Remove the files of killed jobs. A job that is alive but not visible from here would list again."""
    for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}[0-9]*-*-*"):
        process, started = file.name.removeprefix(_PREFIX).split("-")[:2]
        if process.isdigit() and started != start_time(int(process)):
            _unlink(file)


def _remove(name: str, process: int) -> None:
    if os.getpid() == process:
        for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{name}-*"):
            _unlink(file)


def _unlink(file: Path) -> None:
    with suppress(OSError):  # another job has removed it, or it is another user's
        file.unlink()
