"""Walking folders on disk in S3's order of keys.

S3 sorts keys by their UTF-8 bytes, which for Python's strings is plain `<`. A folder's entries, sorted with a slash after each
subfolder's name, have exactly this order, because all keys below `name/` are neighbours. So a walk can begin at any key, and opens
only the folders on the way to it and those after it that the reader needs.
"""

from __future__ import annotations

import errno
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

_MAX_NAME = 255  # bytes, on all common file systems
_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_SETTLED_NS = 2_000_000_000  # a folder changed more recently may change again at the same time stamp: FAT counts in 2 s


def is_plain(key: str) -> bool:
    """Return whether a key can be a path below its bucket's folder unchanged: it stays inside and has one spelling."""
    parts = key.split("/")
    return "\0" not in key and not any(part in ("", ".", "..") or len(part.encode()) > _MAX_NAME for part in parts)


def walk(
    bucket: str,
    prefix: str,
    low: str,
    *,
    hidden: Collection[str] = (),
    one_each: bool = False,
    on_omitted: Callable[[str], None],
) -> Iterator[tuple[str, str]]:
    """Yield key and path of every file below the folder `bucket` whose key begins with `prefix` and is at least `low`.

    Links are followed, except in a circle. The keys in `hidden` are left out. With `one_each`, one key is enough of each folder
    after the prefix. `on_omitted` is called with a message about each folder with entries that cannot have a key. Raises
    PermissionError if a folder cannot be read, since a listing without its keys would look complete.
    """

    def below(base: str, low: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, str]]:
        folder = f"{bucket}/{base}"
        try:
            state = Path(folder).stat()
            is_settled = time.time_ns() - state.st_mtime_ns > _SETTLED_NS
            identity = (state.st_dev, state.st_ino)
            names, omitted = _scan(folder, (*identity, state.st_mtime_ns) if is_settled else object())
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            return
        if identity in above:
            return
        if omitted:
            shown = ", ".join(omitted[:3]) + f" and {len(omitted) - 3} more" * (len(omitted) > 3)
            on_omitted(f"{folder}: left out what cannot be in S3: {shown}; rename or remove it")
        for name in names[_first(names, base, low) :]:
            key = base + name
            if not key.startswith(prefix):
                return
            if name.endswith("/"):
                found = below(key, low, (*above, identity))
                yield from islice(found, 1) if one_each else found
            elif key not in hidden:
                yield key, folder + name

    base = prefix[: prefix.rfind("/") + 1]
    if not base or is_plain(base[:-1]):
        yield from below(base, max(low, prefix), ())


def holds_files(folder: Path) -> bool:
    """Return whether a walk of the folder, which follows links, finds a file. Raises PermissionError as `walk` does."""
    return next(walk(str(folder), "", "", on_omitted=lambda _: None), None) is not None


def names_after(
    found: Iterator[tuple[str, str]], prefix: str, delimiter: str, after: str
) -> Iterator[tuple[str, str | None]]:
    """Yield the keys and paths of a listing, and its common prefixes with None, that follow the name `after`."""
    for key, path in found:
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key if cut < 0 else key[: cut + len(delimiter)]
        if name > after:
            yield name, path if cut < 0 else None
            after = name


def _first(names: list[str], base: str, low: str) -> int:
    """Return the index of the first name that is, or may contain, a key of at least `low`."""
    if not low.startswith(base):
        return 0 if low < base else len(names)
    rest = low[len(base) :]
    index = bisect_left(names, rest)
    is_inside = index and names[index - 1].endswith("/") and rest.startswith(names[index - 1])
    return index - 1 if is_inside else index


@lru_cache(maxsize=32)  # so that a folder of 100,000 files is not read again for each page of 1,000
def _scan(folder: str, identity: object) -> tuple[list[str], list[str]]:
    """Return the names in a folder that can be keys, a subfolder's with a slash, sorted; and those that cannot, with the reason."""
    names, omitted = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if any("\udc80" <= letter <= "\udcff" for letter in entry.name):  # Python's escapes of other bytes
                omitted.append(f"{os.fsencode(entry.name)!r} (not UTF-8)")
            elif _is(entry.is_dir):
                names.append(entry.name + "/")
            elif _is(entry.is_file):  # not a FIFO, not a socket
                names.append(entry.name)
            elif entry.is_symlink():
                omitted.append(f"{entry.name!r} (a link that leads nowhere)")
    return sorted(names), sorted(omitted)


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError as error:
        if error.errno != errno.ELOOP:  # a link to itself, or links in a circle
            raise
        return False
