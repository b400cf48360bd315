"""The objects under a prefix, listed once per host and job for all its ranks and workers.

All objects are listed before the first is read, a long listing many pages at a time (s3_pages.py). The first process that needs
a listing writes it to a file, or why that failed, while the others wait, and all map that file into memory: a million keys take
50 to 70 MB of it, once per host. The objects are in the order of their keys, so that all hosts agree on them. Later epochs list
nothing and see the same objects.

The file is in the temporary folder, and is removed when the process ends that began to read. A listing of 5,000 objects or more is
also copied to the folder of a training job's checkpoints. From there the job reads it when it is restarted, on another machine,
too. Another job does not read it, and removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import mmap
import operator
import os
import shutil
import struct
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

from sagemaker_channels.errors import ChannelError, no_room
from sagemaker_channels.formats.writing import replacing
from sagemaker_channels.job.process_identity import file_name_of, rank_variable, remove_leftovers
from sagemaker_channels.sources.agreement import Agreement
from sagemaker_channels.sources.items import KeyedItems
from sagemaker_channels.sources.silence import Progress, warn

FAR = 5000  # Shorter listings are not kept, nor requested many pages at a time, which takes the import of botocore.
_PREFIX = "launcher-listing-"  # of the files' names
# A file begins with the number of its objects and of the bytes of their keys. Then come the objects' sizes and versions, the ends
# of their keys (all as uint64, the latter with a 0 in front) and the keys, each with a NUL after it. If listing has failed, it has
# a 0, when that was by the clock that all processes share, and the error's text.
_HEAD = struct.Struct("=QQ")

_job: str | None = None  # of this process and its children
_kept: Path | None = None  # what the names of kept files begin with


class Listed(NamedTuple):
    key: str  # the whole key, as in the bucket
    size: int  # bytes
    version: int = 0  # the `version_of` its ETag; 0 if unknown


class Page(NamedTuple):
    """Some objects, by column."""

    keys: Sequence[bytes]
    sizes: Sequence[int]
    versions: Sequence[int]


def page_of(objects: Sequence[tuple[bytes, int, int]]) -> Page:
    """Return objects (key, size, version) as a page."""
    keys, sizes, versions = zip(*objects, strict=True) if objects else ((), (), ())
    return Page(keys, array("Q", sizes), array("Q", versions))


def version_of(etag: str) -> int:
    """Return a number of 64 bits for an ETag; 0 if it is empty."""
    plain = etag.strip('"')
    try:
        if len(plain) == 32:  # an MD5, as most are
            return int(plain[:16], 16)
    except ValueError:
        pass
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "little") if plain else 0


class Listing(KeyedItems[Listed]):
    """The objects of a file in the order of their keys, listed if it has none. It pickles as the file's path."""

    def __init__(
        self, path: Path, name: str, pages: Callable[[], Iterable[Page]], above: Sequence[bytes] = (), named: int = 0
    ) -> None:
        """Read the file, or list. `pages` may list in any order, and an object twice.

        `above` is what may precede the paths in the channel's folder: the first with which all keys begin. `named` is the
        Channel's. Raises ChannelError if the file is another user's, its folder has no room, or the hosts list different objects;
        and what `pages` raises.
        """
        super().__init__()
        self._path, self._name, self._pages, self._folders, self._named = path, name, pages, above, named
        since = time.monotonic_ns()
        with _locked(path) as file:
            if not _is_complete(file):
                _check_failure(file, since)
                try:
                    content = _columns(pages(), name)
                except ChannelError as error:
                    reason = str(error).encode("utf-8", "replace")
                    _write(file, [_HEAD.pack(0, time.monotonic_ns()), reason], path.parent)
                    raise
                _write(file, content, path.parent)
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        count, _ = _HEAD.unpack_from(whole)
        numbers = whole[_HEAD.size : _HEAD.size + 8 * (3 * count + 1)]
        self._text = whole[_HEAD.size + len(numbers) :]
        columns = numbers.cast("Q")
        self._sizes, self._versions, self._ends = columns[:count], columns[count : 2 * count], columns[2 * count :]
        outer = [os.fsencode(self._key(number)) for number in ((0, count - 1) if count else ())]  # The keys are sorted.
        self._above = next((each for each in above if all(key.startswith(each) for key in outer)), b"")
        Agreement(name, None, named).check(self, count, is_complete=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return Listing, (self._path, self._name, self._pages, self._folders, self._named)

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[Listed]:
        return map(self._item, range(len(self)))

    def _item(self, index: int) -> Listed:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return Listed(self._key(index), self._sizes[index], self._versions[index])


@contextmanager
def _locked(path: Path) -> Iterator[FileIO]:
    """Open a file, or make it, and lock it. Raises ChannelError if it belongs to another user."""
    remedy = "set TMPDIR to a folder of your own"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ChannelError(f"{path} cannot be opened: {error.strerror}", remedy=remedy) from error
    with FileIO(descriptor, "r+") as file:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise ChannelError(f"{path} belongs to another user", remedy=remedy)
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield file
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # A process forked meanwhile holds the descriptor, too.


def _is_complete(file: FileIO) -> bool:
    """Return whether a file has a listing that was written to its end."""
    head = os.pread(file.fileno(), _HEAD.size, 0)
    if len(head) < _HEAD.size:
        return False
    count, key_bytes = map(int, _HEAD.unpack(head))
    return os.fstat(file.fileno()).st_size == _HEAD.size + 8 * (3 * count + 1) + key_bytes


def _check_failure(file: FileIO, since: int) -> None:
    """Raise ChannelError if another process failed to list meanwhile: all that waited for it would fail, one after the other."""
    head = file.read(_HEAD.size)
    count, failed = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
    if not count and failed > since:
        raise ChannelError(file.read().decode())


def _columns(pages: Iterable[Page], name: str) -> list[Any]:
    """Return the pieces of a file with the objects of these pages, each key once."""
    progress, count, found = Progress(f"objects of {name} are listed"), 0, []
    for page in pages:
        if page.keys:
            found.append(page)
            count += len(page.keys)
            progress.report(count)
    found.sort(key=lambda page: page.keys[0])
    keys = [*chain.from_iterable(page.keys for page in found)]
    sizes = array("Q", chain.from_iterable(page.sizes for page in found))
    versions = array("Q", chain.from_iterable(page.versions for page in found))
    if not all(map(operator.lt, keys, keys[1:])):  # of a store without an order, as S3 Express is, or listed twice
        objects = dict(zip(keys, zip(sizes, versions, strict=True), strict=True))
        keys = sorted(objects)
        sizes, versions = (array("Q", [objects[key][column] for key in keys]) for column in range(2))
    ends = array("Q", accumulate((len(key) + 1 for key in keys), initial=0))
    return [_HEAD.pack(len(keys), ends[-1]), sizes, versions, ends, b"\0".join([*keys, b""])]


def _write(file: FileIO, columns: Iterable[Any], folder: Path) -> None:
    """Replace a file's content. Raises ChannelError if the folder has no room."""
    try:
        file.seek(0)
        file.truncate()
        for column in columns:
            data = memoryview(column).cast("B")
            while data:
                data = data[file.write(data) :]  # A full disk takes a part first.
    except OSError as error:
        raise no_room("the listing of a channel", folder, error.strerror) from error


def job() -> str:
    """Return this job's identifier on this machine: the same in all ranks that a launcher starts on a host.

    The process that begins to read makes it; its workers get it by fork or by `join_job`.
    """
    global _job
    if _job is None:
        local_rank = rank_variable("LOCAL_RANK")
        started_by = os.getpid() if local_rank is None else os.getppid()
        _job = file_name_of(started_by)
        if local_rank in (None, "0"):
            atexit.register(_remove, _job, os.getpid())
            remove_leftovers(Path(tempfile.gettempdir()), _PREFIX)
    return _job


def join_job(name: str) -> None:
    """Set the job of a process that was started by spawn."""
    global _job
    _job = name


def shared_listing(identity: Sequence[str | None], name: str, *of: Any) -> Listing:
    """Return this job's listing of a prefix, and list it if no process has.

    `identity` distinguishes it from others: endpoint, prefix and so on. `of` are the other arguments of Listing.
    """
    number = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"{_PREFIX}{job()}-{number}")
    if _kept is None:
        return Listing(path, name, *of)
    kept = _kept.with_name(_kept.name + number)
    with suppress(FileNotFoundError), FileIO(kept) as file:
        if _is_complete(file):
            return Listing(kept, name, *of)
    listing = Listing(path, name, *of)
    if len(listing) >= FAR:
        part = kept.with_name(f"{kept.name}.{os.getpid()}")
        try:
            with replacing(kept, part):
                shutil.copyfile(path, part)
        except OSError as error:
            warn(f"{name}: its listing is not kept for restarts: {error}")
    return listing


def keep_in(folder: Path, job_name: str | None) -> None:
    """Keep this process's listings in this folder, if it exists, for the restarts of a job; without a job nowhere."""
    global _kept
    _kept = None
    if job_name is not None and folder.is_dir():
        ours = f".{_PREFIX}{hashlib.sha256(job_name.encode()).hexdigest()[:16]}-"
        _kept = folder / ours
        for file in folder.glob(f".{_PREFIX}*"):
            if not file.name.startswith(ours):
                _unlink(file)


def _remove(name: str, process: int) -> None:
    if os.getpid() == process:
        for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{name}-*"):
            _unlink(file)


def _unlink(file: Path) -> None:
    with suppress(OSError):  # another job has removed it, or it is another user's
        file.unlink()
