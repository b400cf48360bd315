"""The objects that a run reads: those of the `--data` folder, read from this disk, or of S3, read through boto3.

A folder is read through the store that the embedded S3 server serves to scripts, so a script and the channels see the same
objects, without a request per object.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from launcher.console import shown_path
from launcher.errors import RefusedError, did_you_mean
from launcher.s3.reading import CHUNK, Stream, read_object, refusals
from launcher.s3.uri import S3Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from launcher.local.s3_server.store import Store

_HEADS_AT_ONCE = 8  # concurrent requests for the sizes of a manifest's objects
_HEADS_AHEAD = 100  # objects whose sizes are requested together
_SIBLINGS = 1000  # names searched for the nearest one: a single request
_SHOWN = 5  # names beside a missing folder
_AT_ONCE = 1 << 26  # bytes that the kernel copies in one call, between two reports of progress


class RemoteObjects:
    """The objects of AWS, or of the S3-compatible store that a boto3 client reads. All methods raise RefusedErrors."""

    def __init__(self, client: S3Client) -> None:
        self._client = client
        self.where = client.meta.endpoint_url  # for messages

    def entries(self, place: S3Location) -> Iterator[tuple[str, int, float, str]]:
        """Yield every object whose key begins with the place's, in S3's order.

        Each is its key, bytes, time of the last change in seconds since 1970 and storage class.
        """
        with refusals(self._client, place):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=place.key)
            for page in pages:
                for each in page.get("Contents", ()):
                    changed = each["LastModified"].timestamp()
                    yield each["Key"], each["Size"], changed, each.get("StorageClass", "STANDARD")

    def head(self, place: S3Location, count: int, start: int = 0) -> bytes:
        """Return the first `count` bytes of an object that is not empty, or those from `start` on."""
        with refusals(self._client, place):
            part = f"bytes={start}-{start + count - 1}"
            got = self._client.get_object(Bucket=place.bucket, Key=place.key, Range=part)
            with closing(got["Body"]) as body:
                return body.read()

    def sizes(self, places: Iterable[S3Location]) -> Iterator[int]:
        """Yield the bytes of each object; takes few more places than it has yielded sizes."""

        def size(place: S3Location) -> int:
            with refusals(self._client, place):
                return int(self._client.head_object(Bucket=place.bucket, Key=place.key)["ContentLength"])

        rest = iter(places)
        with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
            while some := list(islice(rest, _HEADS_AHEAD)):
                yield from pool.map(size, some)

    def read(self, place: S3Location) -> Stream:
        """Yield one object's bytes, in chunks."""
        return read_object(self._client, place)

    def copy(self, place: S3Location, target: BinaryIO) -> Iterator[int]:
        """Write one object to a new file; yields the bytes written since the last time."""
        for chunk in self.read(place):
            yield target.write(chunk)

    def missing(self, place: S3Location) -> str:
        """Return why no object begins with the place's key, and what exists instead."""
        parent = place.key[: place.key.rstrip("/").rfind("/") + 1]
        with refusals(self._client, S3Location(place.bucket, parent)):
            page = self._client.list_objects_v2(Bucket=place.bucket, Prefix=parent, Delimiter="/", MaxKeys=_SIBLINGS)
        names = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
        names += [each["Key"] for each in page.get("Contents", ())]
        near = did_you_mean(place.key, [name for name in names if name != parent])
        beside = f"; beside it there are {', '.join(names[:3])}" if names else "; the bucket has nothing beside it"
        return f"no object begins with this at {self.where}{near or beside}"


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
                    while count := os.copy_file_range(
                        source, target.fileno(), _AT_ONCE
                    ):  # shares the blocks if the disk can
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
            raise RefusedError(f"{place}: {self.missing(place) if absent else error.details['Message']}") from error
        except PermissionError as error:
            raise RefusedError(f"{place}: {error.filename} cannot be read: {error.strerror}") from error


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
