"""Multipart uploads of the embedded S3: parts are received in any order and become one object when the client completes them.

Uploads are in memory and their parts in the store's incoming folder, so an unfinished upload ends with the server and leaves no
files. Clients send parts of one size, so each is written to its place in one file, which becomes the object; only parts stored
elsewhere are copied. A completed upload is remembered: a client that received no response can repeat its request.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from launcher.local.s3_server.documents import NamedPart, S3Error
from launcher.local.s3_server.storage import checksums
from launcher.local.s3_server.storage.changes import Stored
from launcher.local.s3_server.storage.incoming import Received, Slot
from launcher.local.s3_server.storage.store import Store

PART_SIZES = "parts"  # among an object's headers: the sizes of its parts in bytes, separated by commas
_SMALLEST_PART = 5 * 1024 * 1024  # bytes, of every part except the last
_LAST_NUMBER = 10_000
_COPY_STEP = 1 << 30  # bytes; the kernel copies


@dataclass
class Upload:
    """One upload, unfinished or completed."""

    bucket: str
    key: str
    headers: Mapping[str, str]
    path: Path  # the file in which the parts are written side by side
    checksum: str  # the algorithm that the client requested, in lower case; empty for none
    started: float = field(default_factory=time.time)  # seconds since 1970
    parts: dict[int, Received] = field(default_factory=dict)
    stride: int = 0  # bytes from one part to the next in `path`: the size of the part that was received first
    placed: set[int] = field(default_factory=set)  # the numbers whose place in `path` is in use
    stored: Stored | None = None  # the object, once the upload is completed
    lock: threading.Lock = field(
        default_factory=threading.Lock
    )  # of the fields above; held while the upload is completed

    def discard(self) -> None:
        """Remove the files of all parts."""
        for part in self.parts.values():
            part.discard()
        self.path.unlink(missing_ok=True)


class Uploads:
    """The uploads of one store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._uploads: dict[str, Upload] = {}

    def create(self, bucket: str, key: str, headers: Mapping[str, str], checksum: str) -> str:
        """Begin an upload; return its id. Raises S3Error NoSuchBucket."""
        self._store.require_bucket(bucket)
        upload_id = uuid.uuid4().hex
        self._uploads[upload_id] = Upload(bucket, key, headers, self._store.incoming.new_path(), checksum)
        return upload_id

    def get(self, bucket: str, key: str, upload_id: str, *, completed: bool = False) -> Upload:
        """Return the upload of an id; a completed one only with `completed`. Raises S3Error NoSuchUpload."""
        upload = self._uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.key) != (bucket, key) or (upload.stored and not completed):
            raise S3Error("NoSuchUpload", UploadId=upload_id)
        return upload

    def slot(self, upload: Upload, number: int, size: int) -> Slot | None:
        """Return the place of a part of `size` bytes; None if it needs its own file, as a part that is sent again does."""
        with upload.lock:
            upload.stride = upload.stride or size
            if size > upload.stride or number in upload.placed or not 1 <= number <= _LAST_NUMBER:
                return None
            upload.placed.add(number)
        return Slot(upload.path, (number - 1) * upload.stride, size)

    def of_bucket(self, bucket: str) -> list[tuple[str, Upload]]:
        """Return id and upload of all unfinished uploads of a bucket, by key, then time. Raises S3Error NoSuchBucket."""
        self._store.require_bucket(bucket)
        found = [pair for pair in self._uploads.copy().items() if pair[1].bucket == bucket and pair[1].stored is None]
        return sorted(found, key=lambda pair: (pair[1].key, pair[1].started))

    def add_part(self, upload: Upload, number: int, received: Received) -> None:
        """Keep a part, replacing an earlier one of its number. Raises S3Error InvalidArgument."""
        if not 1 <= number <= _LAST_NUMBER:
            received.discard()
            raise S3Error("InvalidArgument", Message=f"Part number must be between 1 and {_LAST_NUMBER}, inclusive")
        with upload.lock:
            former = upload.parts.get(number)
            upload.parts[number] = received
        if former is not None and former.path != upload.path:
            former.discard()

    def complete(
        self, upload: Upload, named: Sequence[NamedPart], expected: str | None, allow: Callable[[Stored | None], None]
    ) -> Stored:
        """Make the object of the named parts, or return it if it exists already; after an S3Error the upload stays.

        `expected` is the whole object's checksum, if the client states it; `allow` raises to refuse to replace an object.
        """
        with upload.lock:
            if upload.stored is not None:
                return upload.stored
            parts = _choose(upload, named)
            whole = self._assemble(upload, parts)
            md5 = hashlib.md5(b"".join(bytes.fromhex(part.md5) for part in parts), usedforsecurity=False).hexdigest()
            try:
                headers = {**upload.headers, **_whole_checksum(upload, parts, whole, expected)}
            except S3Error:
                whole.discard()
                raise
            headers[PART_SIZES] = ",".join(str(part.size) for part in parts)
            upload.stored = self._store.put((upload.bucket, upload.key), whole, headers, f"{md5}-{len(parts)}", allow)
            upload.discard()
            return upload.stored

    def abort(self, upload_id: str) -> None:
        """End an upload and remove its parts."""
        if (upload := self._uploads.pop(upload_id, None)) is not None:
            upload.discard()

    def _assemble(self, upload: Upload, parts: Sequence[Received]) -> Received:
        """Return one file of the parts: the file that contains them already, and nothing else, or a copy."""
        *places, total = accumulate((part.size for part in parts), initial=0)
        whole = Received(self._store.incoming.new_path(), total, "")
        try:
            in_place = [(part.path, part.offset) for part in parts] == [(upload.path, place) for place in places]
            if in_place and upload.path.stat().st_size == total and upload.placed <= upload.parts.keys():
                upload.placed.update(range(1, _LAST_NUMBER + 1))  # from now on, no part is written into the object
                whole.path.hardlink_to(upload.path)
                return whole
            with whole.path.open("xb") as target:
                for part in parts:
                    _copy(part, target.fileno())
        except BaseException:
            whole.discard()
            raise
        return whole


def _copy(part: Received, target: int) -> None:
    """Append a part to an open file."""
    with part.path.open("rb") as source:
        os.lseek(source.fileno(), part.offset, os.SEEK_SET)
        left = part.size
        while left:
            count = os.sendfile(target, source.fileno(), None, min(left, _COPY_STEP))
            if not count:
                raise OSError(f"{part.path} became shorter while it was copied")
            left -= count


def _whole_checksum(
    upload: Upload, parts: Sequence[Received], whole: Received, expected: str | None
) -> Mapping[str, str]:
    """Return the headers of the whole object's checksum; empty if the client requested none."""
    name = checksums.PREFIX + upload.checksum
    kind = upload.headers.get(checksums.TYPE)
    if not upload.checksum:
        return {}
    if kind == checksums.FULL:
        with whole.path.open("rb", buffering=0) as file:
            return checksums.read(file, upload.checksum, {} if expected is None else {name: expected})
    if not checksums.computable(upload.checksum):
        return {} if expected is None else {name: expected}
    text = checksums.composite(upload.checksum, [part.checksums[name] for part in parts])
    if expected not in (None, text, text.partition("-")[0]):
        raise S3Error("BadDigest")
    return {name: text}


def _choose(upload: Upload, named: Sequence[NamedPart]) -> list[Received]:
    numbers = [part.number for part in named]
    if numbers != sorted(set(numbers)):
        raise S3Error("InvalidPartOrder")
    parts = []
    for number, etag, texts in named:
        part = upload.parts.get(number)
        if part is None or part.md5 != etag or not texts <= set(part.checksums.values()):
            raise S3Error("InvalidPart", PartNumber=number, ETag=etag)
        parts.append(part)
    for part, number in zip(parts[:-1], numbers, strict=False):
        if part.size < _SMALLEST_PART:
            raise S3Error("EntityTooSmall", ProposedSize=part.size, MinSizeAllowed=_SMALLEST_PART, PartNumber=number)
    return parts
