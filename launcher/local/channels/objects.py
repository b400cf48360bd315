"""The objects that a run reads: those of the `--data` folder, read from this disk, or of S3 (`aws.remote_objects`).

A folder is read through the store that the embedded S3 server serves to scripts, so a script and the channels see the same
objects, without a request per object.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from launcher.aws.remote_objects import RemoteObjects
from launcher.console import shown_path
from launcher.errors import RefusedError, did_you_mean
from launcher.s3.reading import CHUNK, Stream
from launcher.s3.uri import S3Location

if TYPE_CHECKING:
    from launcher.local.s3_server.store import Store

_SHOWN = 5  # names beside a missing folder
_AT_ONCE = 1 << 26  # bytes that the kernel copies in one call, between two reports of progress


class FolderObjects:
    """The objects of a folder, `<data>/<bucket>/<key>`, below those that the run has written; methods as in RemoteObjects."""

    def __init__(self, store: Store, data: Path, written: Path) -> None:
        self._store, self._data, self._written = store, data, written
        self.where = shown_path(data)

    def entries(self, place: S3Location) -> Iterator[tuple[str, int, float, str]]:
        with self._refusals(place):
            if not self._store.has_bucket(place.bucket):
                return
            for key, path in self._store.keys(place.bucket, place.key):
                with suppress(FileNotFoundError):  # removed since it was listed
                    state = os.stat(path)  # noqa: PTH116 - a Path costs more than the call itself
                    yield key, state.st_size, state.st_mtime, ""

    def head(self, place: S3Location, count: int, start: int = 0) -> bytes:
        with self._opened(place) as descriptor:
            return os.pread(descriptor, count, start)

    def sizes(self, places: Iterable[S3Location]) -> Iterator[int]:
        for place in places:
            with self._opened(place) as descriptor:
                yield os.fstat(descriptor).st_size

    def read(self, place: S3Location) -> Stream:
        with self._opened(place) as descriptor:
            while chunk := os.read(descriptor, CHUNK):
                yield chunk

    def copy(self, place: S3Location, target: BinaryIO) -> Iterator[int]:
        with self._opened(place) as source:
            if sys.platform == "linux":
                with suppress(OSError):  # not between these two file systems
                    # It shares the blocks if the disk can.
                    while count := os.copy_file_range(source, target.fileno(), _AT_ONCE):
                        yield count
            while chunk := os.read(source, CHUNK):
                yield target.write(chunk)

    def folder(self, place: S3Location, count: int) -> Path | None:
        """Return the folder on this disk that holds `count` objects and nothing else, if it can be mounted for a job."""
        path = self._path(place)
        return path if path.is_dir() and _holds_only(path, count) else None

    def missing(self, place: S3Location) -> str:
        path = self._path(place)
        if path.is_relative_to(self._written):  # a run without --data
            return f"it is not on this machine; give --data DIR, with it in DIR/s3/{place.bucket}/{place.key}"
        shown = f"{shown_path(path)}/" if place.key.endswith("/") or not place.key else shown_path(path)
        if path.is_dir():
            return f"{shown} holds no files; put the channel's files there"
        folder = next((each for each in path.parents if each.is_dir()), self._data)
        names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in folder.glob("*"))
        near = did_you_mean(path.relative_to(folder).parts[0], [name.rstrip("/") for name in names])
        listed = ", ".join(names[:_SHOWN]) + f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
        return f"there is no {shown} ({shown_path(folder)} holds {listed or 'nothing'}){near}; put the channel's files there"

    def _path(self, place: S3Location) -> Path:
        return self._store.data_folder(place.bucket) / place.key

    @contextmanager
    def _opened(self, place: S3Location) -> Iterator[int]:
        with self._refusals(place):
            descriptor, _ = self._store.open(*place)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _refusals(self, place: S3Location) -> Iterator[None]:
        from launcher.local.s3_server.documents import S3Error

        try:
            yield
        except S3Error as error:
            absent = error.code in ("NoSuchKey", "NoSuchBucket")
            raise RefusedError(f"{place}: {self.missing(place)}" if absent else error.details["Message"]) from error
        except PermissionError as error:
            raise RefusedError(f"{error.filename}: cannot be read: {error.strerror}; ask its owner") from error


Objects: TypeAlias = RemoteObjects | FolderObjects


def _holds_only(folder: Path, count: int) -> bool:
    """Return whether a folder holds `count` files of this user and no links, empty folders or anything else.

    Such a folder can be mounted for a job. An overlay could not write to files of another user.
    """
    for parent, folders, files in os.walk(folder):
        states = [Path(parent, name).lstat() for name in (*folders, *files)]
        known = [state for state in states if stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)]
        if not states or len(known) < len(states) or any(state.st_uid != os.geteuid() for state in states):
            return False
        count -= len(files)
    return count == 0
