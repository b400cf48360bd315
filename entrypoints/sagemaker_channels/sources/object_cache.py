"""`cache_dir`: objects kept on a local disk as they are read, for later epochs.

Whole objects are kept, not samples, so every order, shard and format uses the same cache, and all ranks and workers of a host
share it. An object is written below `parts` and renamed when it is complete; one that is not read to its end is not kept. For
formats that begin at an object's end (zip, Parquet), an object of at most `WHOLE_BYTES` is fetched whole first. A full disk ends
caching, not reading. Files that a killed process left half written are removed by the next one that opens the cache.

An S3 object is identified by key, size and ETag, so a changed one is read again. A file of a remote mount is identified by its path
alone, because asking for its time would cost what the cache saves: such a cache should not outlive the job.

`cache_dir="warm-pool"` is the directory that SageMaker keeps for the next job of a warm pool, which finds there what earlier jobs
kept; so only S3 objects are kept (developer guide, train-warm-pools, "Using persistent cache").
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from io import SEEK_END, FileIO
from itertools import groupby
from pathlib import Path
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.cursor import Seekable
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources.listing import Listed
from sagemaker_channels.sources.readers import Reader
from sagemaker_channels.sources.remote_file import is_remote
from sagemaker_channels.sources.silence import warn_once

WARM_POOL = "warm-pool"  # in place of a folder
WHOLE_BYTES = 1 << 30  # Larger objects are not fetched whole before their format reads them.

_OBJECTS = "launcher-objects"  # our folder in a warm pool's directory; pip's cache is beside it
_KEPT_FREE = 0.05  # share of the disk that stays free for the job's other files
_AT_ONCE = 4 << 20  # bytes
_NEW_SECONDS = 60.0  # A younger part may not be locked yet.
_log = logging.getLogger(__name__)


def open_cache(folder: str | os.PathLike[str], channel: Channel) -> ObjectCache | None:
    """Return the cache of a channel; None, with a warning, if the job has no warm pool or that cannot keep the objects."""
    if folder != WARM_POOL:
        return ObjectCache(folder, channel)
    pool = os.environ.get(contract.WARM_POOL_VARIABLE)
    if pool and channel.s3_uri is not None:
        return ObjectCache(Path(pool, _OBJECTS), channel, may_fail=True)
    why = f"{contract.WARM_POOL_VARIABLE} is not set; set resource_config.keep_alive_period_in_seconds"
    if pool:
        why = (
            "the files of a mount have no ETag, which shows the next job whether they changed; use source: S3Connector"
        )
    warn_once(
        f"channel {channel.name!r}: objects are not kept in the {WARM_POOL}: {why}, or name a folder as cache_dir"
    )
    return None


class ObjectCache:
    """The cached objects of one channel. Any number of processes may use the same folder.

    Args:
        folder: The folder, which is made if it is missing.
        channel: The channel.
        may_fail: Keep nothing, with a warning, if the folder cannot be written to.

    Raises:
        ChannelError: The folder cannot be written to, or is a part of the channel.
    """

    def __init__(self, folder: str | os.PathLike[str], channel: Channel, *, may_fail: bool = False) -> None:
        self._full, root = False, _absolute(folder, channel)
        identity = channel.s3_uri or f"{channel.name}\0{channel.path}"
        self._folder = root / hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._parts = self._folder / "parts"
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(self._parts)
            tempfile.TemporaryFile(dir=self._parts).close()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) and not may_fail:
                raise ChannelError(
                    f"cannot write to cache_dir {root}: {error}",
                    channel=channel.name,
                    remedy="name a writable folder on a disk of this machine",
                ) from error
            self.stop(error)

    def open_objects(
        self, reader: Reader, channel: Channel, chosen: Iterable[Any]
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        """Like the reader's `open_objects`, but reads cached objects from the disk, and caches the others."""
        placed = ((item, self._place(item)) for item in chosen)
        for kept, items in groupby(placed, key=lambda pair: _is_kept(*pair)):
            if not kept:
                yield from self._fetched(reader, channel, items)
                continue
            for item, place in items:
                yield reader.key_of(channel, item), FileIO(place)

    def _fetched(
        self, reader: Reader, channel: Channel, items: Iterator[tuple[Any, str]]
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        places: deque[str] = deque()  # of the items that the reader has requested but not yielded yet

        def noted() -> Iterator[Any]:
            for item, place in items:
                places.append(place)
                yield item

        with closing(reader.open_objects(channel, noted())) as streams:
            for key, stream in streams:
                place = places.popleft()
                yield key, _CachingStream(stream, self, place) if self.has_room(0) else stream

    def _place(self, item: Any) -> str:
        return f"{self._folder}/{hashlib.sha256(repr(item).encode('utf-8', 'surrogateescape')).hexdigest()}"

    def has_room(self, size: int) -> bool:
        """Return whether an object of so many bytes may be kept."""
        if self._full:
            return False
        try:
            usage = shutil.disk_usage(self._folder)
        except OSError as error:
            self.stop(error)
            return False
        if usage.free < _KEPT_FREE * usage.total:
            self.stop(f"the disk has {usage.free:,} bytes left")
        return not self._full and usage.free - size >= _KEPT_FREE * usage.total

    def stop(self, reason: object) -> None:
        """Keep no more objects, and log it once."""
        if not self._full:
            self._full = True
            _log.warning("%s: no more objects are kept here: %s", self._folder, reason)

    def new_part(self) -> Any:
        """Make a file for an object, locked while it is open. Raises OSError."""
        part = tempfile.NamedTemporaryFile(dir=self._parts, prefix="part-", buffering=0, delete=False)  # noqa: SIM115
        fcntl.flock(part, fcntl.LOCK_EX)
        return part


class _CachingStream:
    """A stream whose bytes are also written to a file: as they are read, or all at the first seek to the end."""

    def __init__(self, stream: ByteStream, cache: ObjectCache, place: str) -> None:
        self._below: Any = stream
        self._stream: Any = stream  # or the file, once the object is kept
        self._cache, self._place = cache, place
        self._part: Any = None
        self._begun = False

    def read(self, size: int = -1, /) -> bytes:
        data: bytes = self._stream.read(size)
        self._keep(memoryview(data), ended=size < 0 or (not data and size > 0))
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        count: int = self._stream.readinto(buffer)
        self._keep(buffer[:count], ended=count == 0 < len(buffer))
        return count

    def seekable(self) -> bool:
        return isinstance(self._stream, Seekable) and self._stream.seekable()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """See io. A first seek to the end keeps the whole object; after any other seek it is not kept."""
        if whence == SEEK_END and not self._begun:
            self._keep_whole()
        self._give_up()
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._give_up()
        self._stream.close()
        self._below.close()

    def _keep(self, data: memoryview, *, ended: bool) -> None:
        try:
            if not self._begun:
                self._begun, self._part = True, self._cache.new_part()
            if self._part is None:
                return
            while len(data):
                data = data[self._part.write(data) :]
            if ended:
                os.replace(self._part.name, self._place)  # noqa: PTH105 (names are plain strings here)
                self._part.close()
                self._part = None
        except OSError as error:
            self._cache.stop(error)
            self._give_up()

    def _keep_whole(self) -> None:
        size = self._below.seek(0, SEEK_END)
        self._below.seek(0)
        if size > WHOLE_BYTES or not self._cache.has_room(size):
            return
        data = b"any"
        while data and (self._part is not None or not self._begun):
            data = self._below.read(_AT_ONCE)
            self._keep(memoryview(data), ended=not data)
        try:
            self._stream = FileIO(self._place)
        except OSError:  # The log has the reason.
            self._below.seek(0)

    def _give_up(self) -> None:
        self._begun = True
        part, self._part = self._part, None
        if part is not None:
            with part, suppress(OSError):
                os.unlink(part.name)  # noqa: PTH108


def _is_kept(item: Any, place: str) -> bool:
    """Return whether the object is in the cache, complete if its listed size is known."""
    try:
        size = os.stat(place).st_size  # noqa: PTH116 (Path costs 5 us each)
    except FileNotFoundError:
        return False
    if not isinstance(item, Listed) or item.size == size:
        return True
    _log.warning("%s has %d bytes, not the %d of object %r: it is read again", place, size, item.size, item.key)
    return False


def _absolute(folder: str | os.PathLike[str], channel: Channel) -> Path:
    """Return the folder that `cache_dir` names. Raises ChannelError if it is part of the channel."""
    root = Path(folder).expanduser().absolute()
    if channel.s3_uri is None and root.resolve().is_relative_to(channel.path.resolve()):
        raise ChannelError(
            f"cache_dir {root} is inside the channel, so cached objects would be read as data",
            channel=channel.name,
            remedy="name another folder on a disk of this machine",
        )
    if is_remote(root):
        _log.warning("cache_dir %s is not on a disk of this machine: reading from there may save nothing", root)
    return root


def _remove_leftovers(parts: Path) -> None:
    """Remove the parts of killed processes, which are not locked."""
    for part in parts.iterdir():
        with suppress(OSError):
            if time.time() - part.stat().st_mtime < _NEW_SECONDS:
                continue
            with part.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
