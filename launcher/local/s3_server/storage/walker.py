"""Walking folders on disk in S3's order of keys.

S3 sorts keys by their UTF-8 bytes, which for Python's strings is plain `<`. A folder's entries, sorted with a slash after each
subfolder's name, have exactly this order, because all keys below `name/` are neighbours. So a walk can begin at any key, and opens
only the folders on the way to it and those after it that the reader needs. A folder's sorted names are cached until its
modification time changes, so that a flat folder of 100,000 files is not read again for each page of 1,000.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

_MAX_NAME = 255  # bytes, on all common file systems
_LAST = "\U0010ffff"  # no character sorts after it
_NAMES_KEPT = 2_000_000  # names in all folders together; about 150 MB
_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_SETTLED_NS = 2_000_000_000  # a folder changed more recently may change again at the same time stamp: FAT counts in 2 s


def is_plain(key: str) -> bool:
    """Return whether a key can be a path below its bucket's folder unchanged: it stays inside and has one spelling."""
    parts = key.split("/")
    if "\0" in key or (len(key) * 4 > _MAX_NAME and any(len(part.encode()) > _MAX_NAME for part in parts)):
        return False
    return not any(part in ("", ".", "..") for part in parts)


def _first_after(prefix: str) -> str | None:
    """Return the smallest string that sorts after all strings that begin with `prefix`; None if there is none."""
    head = prefix.rstrip(_LAST)
    return head[:-1] + chr(ord(head[-1]) + 1) if head else None


@dataclass(frozen=True)
class _Names:
    changed: int  # the folder's modification time, ns
    identity: tuple[int, int]  # device and inode
    names: list[str]  # sorted; a subfolder's name ends in a slash


class Walker:
    """A walk over folders in the order of keys, with a cache of their sorted names. Thread-safe."""

    def __init__(self, on_omitted: Callable[[str], None]) -> None:
        self._on_omitted = on_omitted  # called with a message about each folder with entries that cannot have a key
        self._kept: dict[str, _Names] = {}
        self._count = 0
        self._lock = threading.Lock()

    def walk(self, bucket: str, prefix: str, low: str) -> Iterator[tuple[str, str]]:
        """Yield key and path of every file below the folder `bucket` whose key begins with `prefix` and is at least `low`.

        Links are followed, except in a circle; names that are not UTF-8 have no key and are reported.

        Raises:
            PermissionError: A folder cannot be read; a listing without its keys would look complete.
        """
        base = prefix[: prefix.rfind("/") + 1]
        if base and not is_plain(base[:-1]):
            return
        yield from self._below(f"{bucket}/{base}", prefix, (base, max(low, prefix)), ())

    def _below(
        self, folder: str, prefix: str, span: tuple[str, str], above: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[str, str]]:
        base, low = span  # the folder's own key, and the first key to yield
        listed = self._names(folder)
        if listed is None or listed.identity in above:
            return
        for index in range(_first(listed.names, base, low), len(listed.names)):
            name = listed.names[index]
            key = base + name
            if not key.startswith(prefix):
                return
            if name.endswith("/"):
                yield from self._below(folder + name, prefix, (key, low), (*above, listed.identity))
            else:
                yield key, folder + name

    def _names(self, folder: str) -> _Names | None:
        try:
            state = Path(folder).stat()
            kept = self._kept.get(folder)
            identity = (state.st_dev, state.st_ino)
            if kept is not None and kept.changed == state.st_mtime_ns and kept.identity == identity:
                return kept
            settled = time.time_ns() - state.st_mtime_ns > _SETTLED_NS
            names, omitted = _scan(folder)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            return None
        if omitted:
            shown = ", ".join(omitted[:3]) + f" and {len(omitted) - 3} more" * (len(omitted) > 3)
            self._on_omitted(f"{folder}: left out what cannot be in S3: {shown}; rename or remove it")
        found = _Names(state.st_mtime_ns, identity, names)
        with self._lock:
            self._count -= len(kept.names) if (kept := self._kept.pop(folder, None)) else 0
            if settled and len(found.names) <= _NAMES_KEPT:
                if self._count + len(found.names) > _NAMES_KEPT:
                    self._kept.clear()
                    self._count = 0
                self._kept[folder] = found
                self._count += len(found.names)
        return found


def _first(names: list[str], base: str, low: str) -> int:
    """Return the index of the first name that is, or may contain, a key of at least `low`."""
    if not low.startswith(base):
        return 0 if low < base else len(names)
    rest = low[len(base) :]
    index = bisect_left(names, rest)
    inside = index and names[index - 1].endswith("/") and rest.startswith(names[index - 1])
    return index - 1 if inside else index


def _scan(folder: str) -> tuple[list[str], list[str]]:
    """Return the names in a folder that can be keys, sorted; and those that cannot, each with the reason."""
    names, omitted = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            # Python escapes bytes that are not UTF-8 as these code points.
            if not entry.name.isascii() and any("\udc80" <= letter <= "\udcff" for letter in entry.name):
                omitted.append(f"{os.fsencode(entry.name)!r} (not UTF-8)")
            elif _is(entry.is_dir):
                names.append(entry.name + "/")
            elif _is(entry.is_file):  # not a FIFO, not a socket
                names.append(entry.name)
            elif entry.is_symlink():
                omitted.append(f"{entry.name!r} (a link that leads nowhere)")
    names.sort()
    return names, sorted(omitted)


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError as error:
        if error.errno != errno.ELOOP:  # a link to itself, or links in a circle
            raise
        return False


@dataclass(frozen=True)
class Page:
    """The content of one response of a listing."""

    keys: list[tuple[str, str]]  # key and path
    common: list[str]  # common prefixes
    last: str  # the last of both; the next page begins after it
    truncated: bool  # whether there is a next page


def make_page(
    keys_from: Callable[[str], Iterator[tuple[str, str]]], prefix: str, delimiter: str, marker: str, limit: int
) -> Page:
    """Return the first `limit` keys and common prefixes that sort after `marker`.

    `keys_from(low)` yields key and path from `low` on, all beginning with `prefix`. Keys with the delimiter after the prefix are
    rolled up, and the walk resumes after the common prefix instead of passing through its keys.
    """
    keys: list[tuple[str, str]] = []
    common: list[str] = []
    low: str | None = marker + "\0" if marker else ""  # the smallest string that sorts after it
    rolled = _rolled_up(marker, prefix, delimiter)
    if rolled is not None:
        low = _first_after(rolled)  # S3 does not list a common prefix again unless it sorts after the marker
    last = marker
    while low is not None and limit:
        for key, path in keys_from(low):
            if len(keys) + len(common) == limit:
                return Page(keys, common, last, True)
            rolled = _rolled_up(key, prefix, delimiter)
            if rolled is not None:
                common.append(rolled)
                last, low = rolled, _first_after(rolled)
                break
            keys.append((key, path))
            last = key
        else:
            break
    return Page(keys, common, last, False)


def scattered(key: str) -> tuple[int, str]:
    """Return what the keys of a directory bucket are sorted by here: S3 lists them in an order that it does not define."""
    return crc32(key.encode()), key


def make_scattered_page(pairs: Iterable[tuple[str, str]], prefix: str, delimiter: str, marker: str, limit: int) -> Page:
    """Return a page as `make_page` does, of all keys and paths that begin with `prefix`, in the order of a directory bucket."""
    paths: dict[str, str | None] = {}
    for key, path in pairs:
        rolled = _rolled_up(key, prefix, delimiter)
        paths[rolled or key] = None if rolled else path
    left = [each for each in sorted(paths, key=scattered) if not marker or scattered(each) > scattered(marker)]
    shown = {each: paths[each] for each in left[:limit]}
    keys = [(key, path) for key, path in shown.items() if path is not None]
    return Page(
        keys, [each for each, path in shown.items() if path is None], [marker, *shown][-1], len(left) > limit > 0
    )


def _rolled_up(key: str, prefix: str, delimiter: str) -> str | None:
    if not delimiter or not key.startswith(prefix):
        return None
    cut = key.find(delimiter, len(prefix))
    return None if cut < 0 else key[: cut + len(delimiter)]
