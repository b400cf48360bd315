"""Multipart uploads of the embedded S3: parts arrive in any order and become one object when the client says so.

Uploads live in memory and their parts in the store's incoming folder, so one that is neither completed nor aborted ends
with the server and leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from launcher.local.s3_server.documents import S3Error
from launcher.local.s3_server.store import Arrived, Store, Stored

_SMALLEST_PART = 5 * 1024 * 1024  # bytes, of every part but the last
_LAST_NUMBER = 10_000
_COPY_STEP = 4 * 1024 * 1024  # bytes


@dataclass(frozen=True)
class Upload:
    """One upload under way."""

    bucket: str
    key: str
    headers: Mapping[str, str]
    started: float  # seconds since 1970
    parts: dict[int, Arrived] = field(default_factory=dict)


class Uploads:
    """The uploads of one store. Safe to use from many threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._uploads: dict[str, Upload] = {}

    def create(self, bucket: str, key: str, headers: Mapping[str, str]) -> str:
        """A new upload's id. S3Error NoSuchBucket."""
        self._store.require_bucket(bucket)
        upload_id = uuid.uuid4().hex
        with self._lock:
            self._uploads[upload_id] = Upload(bucket, key, headers, time.time())
        return upload_id

    def get(self, bucket: str, key: str, upload_id: str) -> Upload:
        """The upload of that id. S3Error NoSuchUpload."""
        upload = self._uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.key) != (bucket, key):
            raise S3Error("NoSuchUpload", UploadId=upload_id)
        return upload

    def of_bucket(self, bucket: str) -> list[tuple[str, Upload]]:
        """Id and upload of all under way in a bucket, by key and then by time. S3Error NoSuchBucket."""
        self._store.require_bucket(bucket)
        with self._lock:
            found = [(upload_id, upload) for upload_id, upload in self._uploads.items() if upload.bucket == bucket]
        return sorted(found, key=lambda pair: (pair[1].key, pair[1].started))

    def add_part(self, upload: Upload, number: int, arrived: Arrived) -> None:
        """Keeps a part, in place of an earlier one of that number. S3Error InvalidArgument."""
        if not 1 <= number <= _LAST_NUMBER:
            self._store.discard(arrived)
            raise S3Error("InvalidArgument", Message=f"Part number must be between 1 and {_LAST_NUMBER}, inclusive")
        with self._lock:
            former = upload.parts.get(number)
            upload.parts[number] = arrived
        if former is not None:
            self._store.discard(former)

    def complete(
        self,
        upload_id: str,
        upload: Upload,
        named: Sequence[tuple[int, str]],
        allow: Callable[[Stored | None], None],
    ) -> Stored:
        """Makes the object out of the parts that are named by number and ETag.

        S3Error InvalidPart, InvalidPartOrder, EntityTooSmall, and what `Store.put` and `allow` raise; the upload stays
        in each case.
        """
        with self._lock:
            parts = _choose(upload, named)
        whole = self._join(parts)
        digest = hashlib.md5(b"".join(bytes.fromhex(part.md5) for part in parts), usedforsecurity=False).hexdigest()
        stored = self._store.put((upload.bucket, upload.key), whole, upload.headers, f"{digest}-{len(parts)}", allow)
        self.abort(upload_id)
        return stored

    def abort(self, upload_id: str) -> None:
        """Ends an upload and removes its parts."""
        with self._lock:
            upload = self._uploads.pop(upload_id, None)
        for part in upload.parts.values() if upload is not None else ():
            self._store.discard(part)

    def _join(self, parts: Sequence[Arrived]) -> Arrived:
        path = parts[0].path.with_name(uuid.uuid4().hex)
        whole = Arrived(path, sum(part.size for part in parts), "")
        try:
            with path.open("xb") as target:
                for part in parts:
                    with part.path.open("rb") as source:
                        shutil.copyfileobj(source, target, _COPY_STEP)
        except BaseException:
            self._store.discard(whole)
            raise
        return whole


def _choose(upload: Upload, named: Sequence[tuple[int, str]]) -> list[Arrived]:
    numbers = [number for number, _ in named]
    if numbers != sorted(set(numbers)):
        raise S3Error("InvalidPartOrder")
    parts = []
    for number, etag in named:
        part = upload.parts.get(number)
        if part is None or part.md5 != etag:
            raise S3Error("InvalidPart", PartNumber=number, ETag=etag)
        parts.append(part)
    for part, number in zip(parts[:-1], numbers, strict=False):
        if part.size < _SMALLEST_PART:
            raise S3Error("EntityTooSmall", ProposedSize=part.size, MinSizeAllowed=_SMALLEST_PART, PartNumber=number)
    return parts
