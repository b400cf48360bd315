"""The objects of the embedded S3 server: a data folder that is only read, and an overlay for all writes.

Object `<key>` of `<bucket>` is the file `<folder>/<bucket>/<key>`, in the overlay if it exists there, else in the data folder.
So data is served in place, and a run's writes are ordinary files. Headers, ETags and deletions are in memory, and end with the
server. What has no place in the overlay is in `<overlay>/.s3`, a name that no bucket can have: `incoming/` has bodies and parts
until they are moved into place; `odd/` has objects whose key is not a path, or whose path is taken: `a/b` beside `a`, `a/` (a
folder's marker), `a//b`, `../a`. So every key that S3 allows can be put, and none can leave its bucket.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import re
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from urllib.parse import quote

from launcher.local.s3_server.documents import S3Error
from launcher.s3.walk import is_plain, walk

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")  # what boto3 accepts
_NEW_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KEY_LIMIT = 1024  # bytes of UTF-8, as in S3
_TAKEN = {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO}
_Stamp = tuple[int, int, int]  # inode, size in bytes and modification time in ns, which identify a file's content


@dataclass(frozen=True)
class Stored:
    """An object: the identity of its file, and the attributes with which a client put it."""

    stamp: _Stamp
    etag: str  # without quotes
    headers: Mapping[str, str]  # Content-Type, x-amz-meta-...

    @property
    def size(self) -> int:
        return self.stamp[1]

    @property
    def modified(self) -> float:
        """In seconds since 1970."""
        return self.stamp[2] / 1e9


@dataclass(frozen=True)
class Received:
    """A body without a key; its owner passes it to `Store.put` or removes it."""

    path: Path
    size: int
    md5: str  # hex

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


class Store:
    """Buckets and objects of a data folder below an overlay; either may be missing. Thread-safe."""

    def __init__(
        self,
        data: Path,
        overlay: Path,
        on_omitted: Callable[[str], None] = lambda text: None,
        elsewhere: Mapping[str, Path] | None = None,
    ) -> None:
        """Open the store: `data` is only read, writes go to `overlay`.

        `on_omitted` is called with a message about each listed folder with entries that cannot be objects; `elsewhere` has the
        folders of buckets that are not below `data`.
        """
        self._data, self._overlay = data.absolute(), overlay.absolute()
        self._elsewhere = elsewhere or {}
        self._on_omitted = on_omitted
        self._own = self._overlay / ".s3"
        self._lock = threading.Lock()  # held while a file is moved or removed, never while bytes are received
        self._puts: dict[_Stamp, Stored] = {}  # a file that is changed by hand has no headers, and never a wrong ETag
        self._odd: dict[tuple[str, str], Path] = {}  # bucket and key -> file
        self._deleted: set[tuple[str, str]] = set()  # bucket and key whose object in the data folder is hidden

    def clear(self) -> None:
        """Remove all bodies that have no key."""
        shutil.rmtree(self._own / "incoming", ignore_errors=True)
        with suppress(OSError):  # it has odd objects, or was never made
            self._own.rmdir()

    def data_folder(self, bucket: str) -> Path:
        """Return the folder of a bucket's data, which need not exist."""
        return self._elsewhere.get(bucket) or self._data / bucket

    def buckets(self) -> dict[str, float]:
        """Return the name of every bucket, in order, with the time of the last change of its folder."""
        folders = [each for root in (self._overlay, self._data) for each in root.glob("*") if each.is_dir()]
        return {each.name: each.stat().st_mtime for each in sorted(folders) if _BUCKET.fullmatch(each.name)}

    def has_bucket(self, bucket: str) -> bool:
        folders = (self._overlay / bucket, self.data_folder(bucket))
        return _BUCKET.fullmatch(bucket) is not None and any(folder.is_dir() for folder in folders)

    def require_bucket(self, bucket: str) -> None:
        """Raise S3Error NoSuchBucket if the bucket does not exist."""
        if not self.has_bucket(bucket):
            raise S3Error("NoSuchBucket", BucketName=bucket)

    def create_bucket(self, bucket: str) -> None:
        """Make a bucket in the overlay, unless it exists, as in us-east-1. Raises S3Error InvalidBucketName."""
        if not _NEW_BUCKET.fullmatch(bucket) and not self.has_bucket(bucket):
            raise S3Error("InvalidBucketName", BucketName=bucket)
        (self._overlay / bucket).mkdir(parents=True, exist_ok=True)

    def open(self, bucket: str, key: str) -> tuple[int, Stored]:
        """Open an object; the caller closes the file descriptor. Raises S3Error NoSuchKey, NoSuchBucket, AccessDenied."""
        self.require_bucket(bucket)
        paths = [f"{self._overlay}/{bucket}/{key}", f"{self.data_folder(bucket)}/{key}"] if is_plain(key) else []
        if (bucket, key) in self._deleted:
            paths.pop()
        if odd := self._odd.get((bucket, key)):
            paths.insert(0, str(odd))
        for path in paths:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would block
            except PermissionError as error:
                why = f"{path}: cannot be read: {error.strerror}; ask its owner"
                raise S3Error("AccessDenied", Message=why) from error
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                continue
            state = os.fstat(descriptor)
            if stat.S_ISREG(state.st_mode):
                return descriptor, self._described(state)
            os.close(descriptor)
        raise S3Error("NoSuchKey", Key=key)

    def keys(
        self, bucket: str, prefix: str = "", low: str = "", *, one_each: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Yield key and path of all objects whose key begins with `prefix` and is at least `low`, sorted.

        With `one_each`, one of each folder after the prefix is enough. Raises S3Error NoSuchBucket.
        """
        self.require_bucket(bucket)
        hidden = {key for name, key in self._deleted.copy() if name == bucket}
        odd = [(key, str(path)) for (name, key), path in self._odd.copy().items() if name == bucket]
        overlay, data = str(self._overlay / bucket), str(self.data_folder(bucket))
        layers = (
            sorted(pair for pair in odd if pair[0] >= low and pair[0].startswith(prefix)),
            walk(overlay, prefix, low, one_each=one_each, on_omitted=self._on_omitted),
            walk(data, prefix, low, hidden=hidden, one_each=one_each, on_omitted=self._on_omitted),
        )
        last = None
        for key, path in heapq.merge(*layers, key=itemgetter(0)):  # of equal keys, the overlay's is first
            if key != last:
                yield key, path
            last = key

    def describe(self, path: str) -> Stored | None:
        """Return the attributes of an object that `keys` yielded; None if it was removed since."""
        try:
            return self._described(os.stat(path))  # noqa: PTH116 - a Path costs more than the call itself
        except FileNotFoundError:
            return None

    def receive(self, blocks: Iterable[bytes]) -> Received:
        path = self.new_path("incoming")
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with path.open("xb") as file:
                for block in blocks:
                    digest.update(block)
                    file.write(block)
                return Received(path, file.tell(), digest.hexdigest())
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def put(
        self,
        name: tuple[str, str],
        received: Received,
        headers: Mapping[str, str],
        etag: str = "",
        allow: Callable[[Stored | None], None] = lambda existing: None,
    ) -> Stored:
        """Store a received body under its bucket and key; the store owns the body from now on.

        `etag` defaults to the MD5. `allow` is called with the existing object, while no other thread can change it, and raises to
        refuse. Raises S3Error NoSuchBucket, KeyTooLongError.
        """
        bucket, key = name
        try:
            if len(key.encode()) > _KEY_LIMIT:
                raise S3Error("KeyTooLongError")
            with self._lock:
                allow(self._existing(bucket, key))
                stored = Stored(_stamp(received.path.stat()), etag or received.md5, headers)
                self._puts[stored.stamp] = stored  # before a reader can open the file
                odd = None
                if not is_plain(key) or not _moved(received.path, self._overlay / bucket / key):
                    odd = self.new_path("odd", f"-{quote(key, safe='')[-200:]}")
                    received.path.replace(odd)
                former = self._odd.pop(name, None)
                if odd is not None:
                    self._odd[name] = odd
                if former is not None:
                    former.unlink()
                return stored
        finally:
            received.discard()

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object, or hide it if it is in the data folder; a missing object is not an error. Raises S3Error."""
        with self._lock:
            if self._existing(bucket, key) is None:
                return
            if is_plain(key):
                self._deleted.add((bucket, key))  # first, so that the data folder's object does not reappear
                written = self._overlay / bucket / key
                if written.is_file():
                    written.unlink()
                    for folder in written.parents[: key.count("/")]:  # those that are empty now
                        with suppress(OSError):
                            folder.rmdir()
            if odd := self._odd.pop((bucket, key), None):
                odd.unlink()

    def new_path(self, folder: str, ending: str = "") -> Path:
        (self._own / folder).mkdir(parents=True, exist_ok=True)
        return self._own / folder / f"{uuid.uuid4().hex}{ending}"

    def _existing(self, bucket: str, key: str) -> Stored | None:
        try:
            descriptor, stored = self.open(bucket, key)
        except S3Error as error:
            if error.code != "NoSuchKey":
                raise
            return None
        os.close(descriptor)
        return stored

    def _described(self, state: os.stat_result) -> Stored:
        identity = _stamp(state)
        # The file is not read for a hash. The `-1` shows that this is not an MD5, so that no client compares it with one.
        etag = hashlib.blake2b(repr(identity).encode(), digest_size=16).hexdigest() + "-1"
        return self._puts.get(identity) or Stored(identity, etag, {})


def _stamp(state: os.stat_result) -> _Stamp:
    return state.st_ino, state.st_size, state.st_mtime_ns


def _moved(source: Path, target: Path) -> bool:
    """Move a file; return False if a file is in the place of a folder, or the reverse."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        return False
    return True
