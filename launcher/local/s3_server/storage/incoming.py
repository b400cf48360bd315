"""Bodies received by the embedded S3 that have no key yet: each is a file, or a slot of one."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launcher.local.s3_server.documents import S3Error

_BUFFER = 256 * 1024  # bytes


@dataclass(frozen=True)
class Received:
    """A completely received body without a key; its owner passes it to `Store.put` or discards it."""

    path: Path
    size: int
    md5: str  # hex
    offset: int = 0  # in the file, in bytes, if the part was written to its place in the whole object
    checksums: Mapping[str, str] = field(default_factory=dict)  # header name -> base64 text
    modified: float = field(default_factory=time.time)  # seconds since 1970

    def discard(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Slot:
    """The place in a file to which a body of `size` bytes is written."""

    path: Path
    offset: int
    size: int


class Incoming:
    """The folder of bodies that have no key yet; made for the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clear(self) -> None:
        """Remove all bodies that have no key."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_path(self) -> Path:
        """Return the path of a file that does not exist yet."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / uuid.uuid4().hex

    def receive(self, body: io.RawIOBase, slot: Slot | None = None) -> Received:
        """Read a body to its end, into `slot` or a new file. Raises S3Error IncompleteBody if it is longer than its slot."""
        path, offset = (slot.path, slot.offset) if slot else (self.new_path(), 0)
        digest = hashlib.md5(usedforsecurity=False)
        buffer = memoryview(bytearray(_BUFFER))
        size = 0
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)  # the file can have other slots
            with os.fdopen(descriptor, "wb") as file:
                file.seek(offset)
                while count := body.readinto(buffer):
                    size += count
                    if slot is not None and size > slot.size:
                        raise S3Error("IncompleteBody")
                    digest.update(buffer[:count])
                    file.write(buffer[:count])
        except BaseException:
            if slot is None:
                path.unlink(missing_ok=True)
            raise
        return Received(path, size, digest.hexdigest(), offset)
