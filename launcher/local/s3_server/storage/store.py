"""The objects of the embedded S3 server: a data folder that is only read, and an overlay for all writes.

Object `<key>` of `<bucket>` is the file `<folder>/<bucket>/<key>`, in the overlay if it exists there, else in the data folder.
So data is served in place, and a run's writes are ordinary files. What files cannot represent is in `<overlay>/.s3`, a name that
no bucket can have:

- `changes.jsonl`: what was put with which headers, and what was deleted (changes.py).
- `odd/`: objects whose key is not a path, or whose path is taken: `a/b` beside `a`, `a/` (a folder's marker), `a//b`, `../a`. Their
  files are named for a hash of the key, so every key that S3 allows can be put, and none can leave its bucket.
- `incoming/`: bodies and parts still being received (incoming.py). A put is moved into place when it is whole.

Links in the data folder are the user's own and are followed when reading. Nothing is ever written through a link.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from launcher.local.s3_server.documents import S3Error
from launcher.local.s3_server.storage.changes import Journal, Stored, stamp
from launcher.local.s3_server.storage.incoming import Incoming, Received
from launcher.local.s3_server.storage.walker import Walker, is_plain

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")  # what boto3 accepts
_NEW_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KEY_LIMIT = 1024  # bytes of UTF-8, as in S3
_TAKEN = {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO}


class Store:
    """Buckets and objects of a data folder below an overlay; either may be missing. Thread-safe."""

    def __init__(
        self,
        data: Path,
        overlay: Path,
        on_omitted: Callable[[str], None] = lambda text: None,
        elsewhere: Mapping[str, Path] | None = None,
    ) -> None:
        """Open the store.

        Args:
            data: The folder that is only read.
            overlay: The folder for writes.
            on_omitted: Called with a message about each listed folder with entries that cannot be objects.
            elsewhere: Bucket -> its folder, for buckets that are not below `data`.
        """
        self._data = str(data.absolute())
        self._elsewhere = elsewhere or {}
        self._overlay = str(overlay.absolute())
        self._own = overlay.absolute() / ".s3"
        self.incoming = Incoming(self._own / "incoming")
        self._walker = Walker(on_omitted)
        self._lock = threading.Lock()  # held while a file is moved or removed, never while bytes are received
        self._journal = Journal(self._own / "changes.jsonl")
        self.incoming.clear()

    def buckets(self) -> dict[str, float]:
        """Return the name of every bucket, in order, with the time of the last change of its folder."""
        found: dict[str, float] = {}
        for root in (Path(self._overlay), Path(self._data)):
            folders = [each for each in root.glob("*") if _BUCKET.fullmatch(each.name) and each.is_dir()]
            found |= {each.name: each.stat().st_mtime for each in folders}
        return dict(sorted(found.items()))

    def has_bucket(self, bucket: str) -> bool:
        """Return whether the bucket exists."""
        return _BUCKET.fullmatch(bucket) is not None and any(map(os.path.isdir, self._folders(bucket)))

    def require_bucket(self, bucket: str) -> None:
        """Raise S3Error NoSuchBucket if the bucket does not exist."""
        if not self.has_bucket(bucket):
            raise S3Error("NoSuchBucket", BucketName=bucket)

    def create_bucket(self, bucket: str) -> None:
        """Make a bucket in the overlay, unless it exists, as in us-east-1. Raises S3Error InvalidBucketName."""
        if not _NEW_BUCKET.fullmatch(bucket) and not self.has_bucket(bucket):
            raise S3Error("InvalidBucketName", BucketName=bucket)
        Path(self._overlay, bucket).mkdir(parents=True, exist_ok=True)

    def delete_bucket(self, bucket: str) -> None:
        """Remove an empty bucket of the overlay. Raises S3Error BucketNotEmpty, NoSuchBucket; AccessDenied if it is data."""
        with self._lock:
            if next(self.keys(bucket, "", ""), None) is not None:
                raise S3Error("BucketNotEmpty", BucketName=bucket)
            overlay, data = self._folders(bucket)
            if Path(data).is_dir():
                raise S3Error("AccessDenied", Message=f"the launcher does not remove {data}, a folder of your data")
            shutil.rmtree(overlay)

    def open(self, bucket: str, key: str) -> tuple[int, Stored]:
        """Open an object; the caller closes the file descriptor. Raises S3Error NoSuchKey, NoSuchBucket, AccessDenied."""
        for path in self._places(bucket, key):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would block
            except PermissionError as error:
                raise S3Error("AccessDenied", Message=f"the launcher may not read {path}") from error
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                continue
            state = os.fstat(descriptor)
            if stat.S_ISREG(state.st_mode):
                return descriptor, self._describe(bucket, key, state)
            os.close(descriptor)
        self.require_bucket(bucket)
        raise S3Error("NoSuchKey", Key=key)

    def keys(self, bucket: str, prefix: str, low: str) -> Iterator[tuple[str, str]]:
        """Yield key and path of all objects whose key begins with `prefix` and is at least `low`. Raises S3Error NoSuchBucket."""
        self.require_bucket(bucket)
        changes = self._journal.of(bucket)
        overlay, data = self._folders(bucket)
        odd = sorted(key for key in changes.odd.copy() if key >= low and key.startswith(prefix))
        layers = (
            self._walker.walk(overlay, prefix, low),
            ((key, str(self._odd_path(bucket, key))) for key in odd),
            (pair for pair in self._walker.walk(data, prefix, low) if pair[0] not in changes.deleted),
        )
        last = None
        for key, path in heapq.merge(*layers, key=itemgetter(0)):  # of equal keys, the overlay's is first
            if key != last:
                yield key, path
            last = key

    def describe(self, bucket: str, key: str, path: str) -> Stored | None:
        """Return the attributes of an object that `keys` yielded; None if it was removed since."""
        try:
            return self._describe(bucket, key, os.stat(path))  # noqa: PTH116 - a Path costs more than the call itself
        except FileNotFoundError:
            return None

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
                self.require_bucket(bucket)
                allow(self._existing(bucket, key))
                stored = Stored(stamp(received.path.stat()), etag or received.md5, headers)
                self._journal.announce(bucket, key, stored)
                odd_path = self._odd_path(bucket, key)
                odd = not (is_plain(key) and self._move_to_path(bucket, key, received.path))
                if odd:
                    odd_path.parent.mkdir(exist_ok=True)
                    received.path.replace(odd_path)
                self._journal.settle(bucket, key, stored, odd=odd)
                if not odd:
                    odd_path.unlink(missing_ok=True)  # stored there while its path was occupied
                return stored
        finally:
            received.discard()

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object, or hide it if it is in the data folder; a missing object is not an error. Raises S3Error."""
        with self._lock:
            self.require_bucket(bucket)
            if self._existing(bucket, key) is None:
                return
            plain = is_plain(key)
            written = Path(self._overlay, bucket, key) if plain else None
            if written is not None and self._behind_link(written):
                reason = f"{written} is reached through a link; objects are not removed through links"
                raise S3Error("AccessDenied", Message=reason)
            hide = plain and (self.data_folder(bucket) / key).is_file()
            self._journal.delete(bucket, key, hide=hide)  # first, so that the data folder's object does not reappear
            self._odd_path(bucket, key).unlink(missing_ok=True)
            if written is not None and written.is_file():
                written.unlink()
                for folder in written.parents[: key.count("/")]:  # those that are empty now
                    with suppress(OSError):
                        folder.rmdir()

    def data_folder(self, bucket: str) -> Path:
        """Return the folder of a bucket's data, which need not exist."""
        return self._elsewhere.get(bucket) or Path(self._data, bucket)

    def _folders(self, bucket: str) -> tuple[str, str]:
        if not _BUCKET.fullmatch(bucket):
            raise S3Error("NoSuchBucket", BucketName=bucket)
        return f"{self._overlay}/{bucket}", str(self.data_folder(bucket))

    def _places(self, bucket: str, key: str) -> Iterator[str]:
        """Yield the paths at which an object can be stored, in the order of precedence."""
        overlay, data = self._folders(bucket)
        changes = self._journal.of(bucket)
        plain = is_plain(key)
        if plain:
            yield f"{overlay}/{key}"
        if key in changes.odd:
            yield str(self._odd_path(bucket, key))
        if plain and key not in changes.deleted:
            yield f"{data}/{key}"

    def _odd_path(self, bucket: str, key: str) -> Path:
        return self._own / "odd" / hashlib.sha256(f"{bucket}/{key}".encode()).hexdigest()

    def _describe(self, bucket: str, key: str, state: os.stat_result) -> Stored:
        identity = stamp(state)
        if put := self._journal.of(bucket).put_of(key, identity):
            return put
        # The file is not read for a hash. The `-1` shows that this is not an MD5, so that no client compares it with one.
        etag = hashlib.blake2b(repr(identity).encode(), digest_size=16).hexdigest() + "-1"
        return Stored(identity, etag, {})

    def _existing(self, bucket: str, key: str) -> Stored | None:
        try:
            descriptor, stored = self.open(bucket, key)
        except S3Error as error:
            if error.code != "NoSuchKey":
                raise
            return None
        os.close(descriptor)
        return stored

    def _move_to_path(self, bucket: str, key: str, source: Path) -> bool:
        """Move the file to the path of its key; return False if a file is in the place of a folder, or the reverse."""
        target = Path(self._overlay, bucket, key)
        if self._behind_link(target):
            return False
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            return False
        return True

    def _behind_link(self, path: Path) -> bool:
        folders = path.parents[: len(path.relative_to(self._overlay).parts) - 1]  # the bucket's and those below it
        return any(folder.is_symlink() for folder in folders)
