"""Multipart uploads of the embedded S3: parts are received in any order and become one object when the client completes them.

Uploads are in memory and their parts in the store's incoming folder, so an unfinished upload ends with the server.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from launcher.local.s3_server.documents import S3Error
from launcher.local.s3_server.store import Received, Store, Stored

LAST_NUMBER = 10_000  # of a part
_SMALLEST_PART = 5 * 1024 * 1024  # bytes, of every part except the last


@dataclass
class Upload:
    """One upload. Completing it again returns the object: a client that waited too long for the response repeats its request."""

    bucket: str
    key: str
    headers: Mapping[str, str]
    parts: dict[int, Received] = field(default_factory=dict)
    stored: Stored | None = None  # the object, once the upload is completed
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while it is completed

    def add(self, number: int, received: Received) -> None:
        """Keep a part, replacing an earlier one of its number."""
        with self.lock:
            if (former := self.parts.pop(number, None)) is not None:
                former.discard()
            self.parts[number] = received

    def complete(
        self,
        store: Store,
        named: Sequence[tuple[int, str]],
        allow: Callable[[Stored | None], None],
    ) -> Stored:
        """Make the object of the parts that are named by number and ETag; after an S3Error the upload stays.

        `allow` raises to refuse to replace an object.
        """
        with self.lock:
            if self.stored is not None:
                return self.stored
            parts = self._chosen(named)
            md5 = hashlib.md5(b"".join(bytes.fromhex(part.md5) for part in parts), usedforsecurity=False).hexdigest()
            whole = Received(store.new_path("incoming"), sum(part.size for part in parts), md5)
            with whole.path.open("xb") as target:
                for part in parts:
                    with part.path.open("rb") as source:
                        shutil.copyfileobj(source, target, 1 << 20)
            place, etag = (self.bucket, self.key), f"{md5}-{len(parts)}"
            self.stored = store.put(place, whole, self.headers, etag, allow)
            self.discard()
            return self.stored

    def discard(self) -> None:
        for part in self.parts.values():
            part.discard()

    def _chosen(self, named: Sequence[tuple[int, str]]) -> list[Received]:
        numbers = [number for number, _ in named]
        if numbers != sorted(set(numbers)):
            raise S3Error("InvalidPartOrder")
        parts = []
        for number, etag in named:
            part = self.parts.get(number)
            if part is None or part.md5 != etag:
                raise S3Error("InvalidPart", PartNumber=number, ETag=etag)
            parts.append(part)
        for part, number in zip(parts[:-1], numbers, strict=False):
            if part.size < _SMALLEST_PART:
                raise S3Error(
                    "EntityTooSmall", ProposedSize=part.size, MinSizeAllowed=_SMALLEST_PART, PartNumber=number
                )
        return parts
