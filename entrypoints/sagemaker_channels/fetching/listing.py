"""The objects under a prefix, listed once per host and job for all its ranks and workers.

S3 lists a thousand keys per request, one request after the other, so sixteen workers that each list a million keys would make
16,000 requests per epoch. Here the first process that needs a page requests it and appends it to a file, where the others read it.
Later epochs list nothing and see the same objects.

The file is in the temporary folder, one per job, prefix and store. Its pages (pages.py) stay in the kernel's cache: a million keys
cost a process less than 1 MB, and 70 to 110 MB on disk. A job is identified by the process that began to read, or by torchrun's.

The objects are in the order of their keys, so that all hosts agree on them. If a page is not, as those of S3 Express are not, all
pages are listed and sorted before the first object is read. A reader that needs all objects of a long listing, because it shuffles
or resumes far behind, has them listed many pages at a time, if the store can do that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.fetching import pages
from sagemaker_channels.fetching.agreement import Agreement
from sagemaker_channels.fetching.items import Items
from sagemaker_channels.fetching.pages import END, HEADER, Listed, Page
from sagemaker_channels.fetching.silence import Progress, warn

_NUMBERS = struct.Struct("<QQ")
_ENDS = struct.Struct("<II")
FAR = 5000  # Shorter listings are read page by page: many pages at a time would cost requests, and the import of botocore.

# Requests the page of a token (None: the first page), and returns its objects and the token of the next page (None: no more).
NextPage = Callable[[str | None], tuple[Iterable[Listed], str | None]]


class Store(NamedTuple):
    """What is listed, and how."""

    name: str
    next_page: NextPage
    # Lists all pages after a key, in any order. Raises UnsuitableError, after which they are listed one by one.
    rest: Callable[[bytes], Iterable[Page]] | None = None
    is_sorted: bool = True  # False: it is known that the pages are not in the order of keys
    kept: Path | None = None  # where a long listing is copied to when it is complete


class _Place(NamedTuple):
    """A page in the file."""

    start: int  # the number of its first object in the listing
    offset: int  # its header's offset in the file
    objects: int
    key_bytes: int


class Listing(Items[Listed]):
    """The objects in the order of their keys: a sequence that grows as it is read.

    `len` and negative indices list to the end first. It pickles as the file's path. An access that needs another page raises what
    `next_page` raises.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path, self._store = path, store
        self._agreement = Agreement(store.name)
        self._progress = Progress(f"objects of {store.name} are listed")
        self._read = 0  # objects that were returned, or may have been
        self._expected = (0, 0)  # a number of objects, and the digest that they must have
        self._begin(pages.open_file(path))

    def _begin(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._closing = weakref.finalize(self, os.close, descriptor)
        self._pages: list[_Place] = []
        self._scanned = 0  # bytes of the file in `_pages`
        self._count = 0  # objects in `_pages`
        self._digests = [0]  # of all keys before a page, as far as they are known
        self._token: str | None = None
        self._complete = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Listing, (self._path, self._store)

    def __len__(self) -> int:
        while self._grow(whole=True):
            pass
        return self._count

    def __iter__(self) -> Iterator[Listed]:
        number = 0
        while number < self._count or self._grow():
            if number < self._count:  # The last page may be empty.
                page = self._page_of(number)
                self._read = max(self._read, page.start + page.objects)
                data = self._pread(20 * page.objects + 4 + page.key_bytes, page.offset + HEADER.size)
                skipped, number = number - page.start, page.start + page.objects
                for key, size, version in list(zip(*pages.decode(data, page.objects), strict=True))[skipped:]:
                    yield Listed(key.decode("utf-8", "surrogateescape"), size, version)

    def _item(self, index: int) -> Listed:
        page = self._page_of(index)
        self._read = max(self._read, index + 1)
        number = index - page.start
        numbers = page.offset + HEADER.size
        ends = numbers + _NUMBERS.size * page.objects
        size, version = _NUMBERS.unpack(self._pread(_NUMBERS.size, numbers + _NUMBERS.size * number))
        start, end = _ENDS.unpack(self._pread(_ENDS.size, ends + END.size * number))
        key = self._pread(end - 1 - start, ends + END.size * (page.objects + 1) + start)
        return Listed(key.decode("utf-8", "surrogateescape"), size, version)

    def _page_of(self, index: int) -> _Place:
        """Return the page of an object, which may have to be listed. Raises IndexError."""
        while index >= self._count and self._grow(whole=index >= self._count + FAR):
            pass
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._pages[self._number(index)]

    def _number(self, index: int) -> int:
        """Return the number of an object's page."""
        return bisect_right(self._pages, index, key=lambda page: page.start) - 1

    def digest(self, count: int) -> int:
        """See Items. Each page is read once for it."""
        if count == 0:
            return 0
        page = self._page_of(count - 1)
        number = self._number(count - 1)
        for before in self._pages[len(self._digests) - 1 : number]:
            self._digests.append(crc32(self._keys(before, before.objects), self._digests[-1]))
        return crc32(self._keys(page, count - page.start), self._digests[number])

    def _keys(self, page: _Place, count: int) -> bytes:
        """Return the keys of a page's first `count` objects, each with a NUL after it."""
        ends = page.offset + HEADER.size + _NUMBERS.size * page.objects
        (end,) = END.unpack(self._pread(END.size, ends + END.size * count))
        return self._pread(end, ends + END.size * (page.objects + 1))

    def _grow(self, *, whole: bool = False) -> bool:
        """Add one more page, and request it if no process has yet, or all with `whole`; False after the last."""
        if self._complete:
            return False
        if self._scan():
            return True
        with self._locked() as descriptor:
            if self._scan():  # Another process has added it meanwhile.
                return True
            self._append(descriptor, whole=whole)
        return self._scan()

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the file at the path, which becomes this listing's."""
        while True:
            # A descriptor of its own, because forked processes would share the lock of a common one.
            descriptor = pages.open_file(self._path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                        if not os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor)):
                            self._reopen()
                        yield descriptor
                        return
            finally:
                os.close(descriptor)

    def _reopen(self) -> None:
        """Continue with another file: a rank that has ended removed the old one, or the objects had to be sorted."""
        self._expected = max(self._expected, (self._read, self.digest(self._read)))
        self._closing()
        self._begin(pages.open_file(self._path))

    def _append(self, descriptor: int, *, whole: bool) -> None:
        """Request the next page, or all."""
        store, folder = self._store, self._path.parent
        if store.is_sorted:
            last = self._last_key()
            if whole and store.rest is not None and self._count >= FAR:
                try:
                    rest = pages.in_order(self._counted(store.rest(last), self._count), folder)
                    return self._replace(chain([self._pread(self._scanned, 0)], rest))
                except pages.UnsuitableError:
                    self._store = store = store._replace(rest=None)
            objects, token = store.next_page(self._token)
            page = pages.page_of(objects)
            if page.follows(last):
                self._write(descriptor, pages.encode(page, token))
                if whole:
                    self._progress.report(self._count + len(page.keys))
                return self._keep(token is None and self._count >= FAR)
        return self._replace(map(pages.encode, pages.sort(self._counted(self._all_pages()), folder)))

    def _last_key(self) -> bytes:
        if not self._count:
            return b""
        page = self._page_of(self._count - 1)
        return self._keys(page, page.objects)[:-1].rpartition(b"\0")[2]

    def _all_pages(self) -> Iterator[Page]:
        objects, token = self._store.next_page(None)
        yield pages.page_of(objects)
        while token is not None:
            objects, token = self._store.next_page(token)
            yield pages.page_of(objects)

    def _counted(self, found: Iterable[Page], count: int = 0) -> Iterator[Page]:
        """Yield pages, and report their progress; `count` objects were listed before."""
        for page in found:
            count += len(page.keys)
            self._progress.report(count)
            yield page

    def _write(self, descriptor: int, page: bytes) -> None:
        with open(descriptor, "ab", buffering=0, closefd=False) as file:
            try:
                pages.write(file, page, self._path.parent)
            except ChannelError:
                os.ftruncate(descriptor, self._scanned)
                raise

    def _replace(self, found: Iterable[bytes]) -> None:
        """Write a file with all pages, and put it at the path."""
        pages.write_all(self._path, chain(found, [pages.encode(Page([], [], []), None)]))
        self._reopen()
        self._keep(True)

    def _keep(self, is_worth: bool) -> None:
        """Copy the complete file to where the job's restarts find it."""
        kept = self._store.kept
        if kept is not None and is_worth:
            part = kept.with_name(f"{kept.name}.{os.getpid()}")
            try:
                shutil.copyfile(self._path, part)
                part.replace(kept)
            except OSError as error:
                warn(f"{self._store.name}: its listing is not kept for restarts: {error}")
                with suppress(OSError):
                    part.unlink()

    def is_complete(self) -> bool:
        """Return whether nothing is left to list."""
        while self._scan():
            pass
        return self._complete

    def _scan(self) -> bool:
        header = self._pread(HEADER.size, self._scanned)
        if len(header) < HEADER.size:
            return False
        count, key_bytes, token_bytes, last = HEADER.unpack(header)
        length = HEADER.size + _NUMBERS.size * count + END.size * (count + 1) + key_bytes
        token = self._pread(token_bytes, self._scanned + length)
        if os.fstat(self._descriptor).st_size < self._scanned + length + token_bytes:
            return False  # It is being written.
        if count:
            self._pages.append(_Place(self._count, self._scanned, count, key_bytes))
        self._scanned += length + token_bytes
        self._count += count
        self._token = token.decode()
        self._complete = bool(last)
        self._check_read()
        self._agreement.check(self, self._count, is_complete=self._complete)
        return True

    def _check_read(self) -> None:
        """Compare the objects that were read before the file was replaced. Raises ChannelError if they are others."""
        count, digest = self._expected
        if count and (self._complete or count <= self._count):
            self._expected = (0, 0)
            if count > self._count or self.digest(count) != digest:
                raise ChannelError(
                    f"{self._store.name}: the first {count:,} objects, which were read already, are others now: the store does"
                    " not list in the order of keys, or objects were added or removed; begin again with Reading(seed=...),"
                    " which lists all objects first"
                )

    def _pread(self, count: int, offset: int) -> bytes:
        return os.pread(self._descriptor, count, offset)
