"""`cache_dir`: objects kept on a local disk as they are read, for later epochs.

Whole objects are kept, not samples, so every order, shard and format uses the same cache, and all ranks and workers of a host
share it. An object is written below `parts` and renamed when it is complete; one that is not read to its end is not kept. For
formats that begin at an object's end (zip, Parquet), an object of at most `WHOLE_BYTES` is fetched whole first. A full disk ends
caching, not reading. Files that a killed process left half written are removed by the next one that opens the cache.

An S3 object is identified by key, size and ETag, so a changed one is read again. A file of a remote mount is identified by its path
alone, because asking for its time would cost what the cache saves: such a cache should not outlive the job. A warm pool's does
(warm_pool.py).
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
from contextlib import closing, contextmanager, suppress
from io import SEEK_END, FileIO
from itertools import groupby
from pathlib import Path
from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.cursor import Seekable
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources.listing import Listed
from sagemaker_channels.sources.readers import Reader
from sagemaker_channels.sources.remote_file import is_remote
from sagemaker_channels.sources.warm_pool import WarmPool

WHOLE_BYTES = 1 << 30  # Larger objects are not fetched whole before their format reads them.

_KEPT_FREE = 0.05  # share of the disk that stays free for the job's other files
_AT_ONCE = 4 << 20  # bytes
_NEW_SECONDS = 60.0  # A younger part may not be locked yet.
_log = logging.getLogger(__name__)


class ObjectCache:
    """The cached objects of one channel. Any number of processes may use the same folder, which is made if it is missing.

    Args:
        folder: The folder.
        channel: The channel.
        pool: The warm pool that the folder is part of.

    Raises:
        ChannelError: The folder cannot be written to, or is a part of the channel.
    """

    def __init__(self, folder: str | os.PathLike[str], channel: Channel, pool: WarmPool | None = None) -> None:
        self._pool, self._has_old = pool, pool is not None
        root = _absolute(folder, channel)
        identity = channel.s3_uri or f"{channel.name}\0{channel.path}"
        self._folder = root / hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._parts = self._folder / "parts"
        self._full = False
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(self._parts)
            with tempfile.TemporaryFile(dir=self._parts):
                pass
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) and pool is None:
                raise ChannelError(
                    f"channel {channel.name!r}: cannot write to cache_dir {root}: {error}; name a writable folder on a disk of"
                    " this machine"
                ) from error
            self._stop(str(error))

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
                try:
                    stream = FileIO(place)
                except FileNotFoundError:  # A process that needed room has removed it.
                    yield from self._fetched(reader, channel, iter([(item, place)]))
                else:
                    yield reader.key_of(channel, item), stream

    def _fetched(
        self, reader: Reader, channel: Channel, items: Iterator[tuple[Any, str]]
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        places: deque[str] = deque()  # of the items that the reader has requested but not yielded yet
        with closing(reader.open_objects(channel, self._note_places(items, places))) as streams:
            for key, stream in streams:
                place = places.popleft()
                yield key, _CachingStream(stream, self, place) if self.has_room(0) else stream

    def _note_places(self, items: Iterable[tuple[Any, str]], places: deque[str]) -> Iterator[Any]:
        for item, place in items:
            places.append(place)
            yield item

    def _place(self, item: Any) -> str:
        place = f"{self._folder}/{hashlib.sha256(repr(item).encode('utf-8', 'surrogateescape')).hexdigest()}"
        if self._pool is not None:
            self._pool.note_use(place)
        return place

    def has_room(self, size: int) -> bool:
        """Return whether an object of so many bytes may be kept. Logs, once, that no more objects will be."""
        if self._full:
            return False
        try:
            usage = shutil.disk_usage(self._folder)
            if self._pool is not None and self._has_old and usage.free - size < _KEPT_FREE * usage.total:
                self._has_old = self._pool.make_room(size + _KEPT_FREE * usage.total)
                usage = shutil.disk_usage(self._folder)
        except OSError as error:
            self._stop(str(error))
            return False
        if usage.free < _KEPT_FREE * usage.total:
            self._stop(f"the disk has {usage.free:,} bytes left")
            return False
        return usage.free - size >= _KEPT_FREE * usage.total

    def _stop(self, reason: str) -> None:
        self._full = True
        _log.warning("%s: no more objects are kept here: %s", self._folder, reason)

    @contextmanager
    def _stop_on_error(self) -> Iterator[None]:
        """Keep no more objects after an error of the disk."""
        try:
            yield
        except OSError as error:
            self._stop(str(error))

    def begin_part(self) -> FileIO | None:
        """Make a file for an object, locked while it is open; None if that fails."""
        part = None
        with self._stop_on_error():
            descriptor, name = tempfile.mkstemp(dir=self._parts, prefix="part-")
            os.close(descriptor)
            part = FileIO(name, "r+")
            fcntl.flock(part, fcntl.LOCK_EX)
        return None if self._full else part

    def add_to(self, part: FileIO, data: memoryview) -> bool:
        """Write to a part; return False if that fails."""
        with self._stop_on_error():
            while len(data):
                data = data[part.write(data) :]
        return not len(data)

    def end_part(self, part: FileIO, place: str | None) -> None:
        """Move a part to its object's path, or remove it if that is None."""
        with self._stop_on_error(), part:
            if place is None:
                os.unlink(part.name)  # noqa: PTH108 (names are plain strings here)
            else:
                os.replace(part.name, place)  # noqa: PTH105


class _CachingStream:
    """A stream whose bytes are also written to a file: as they are read, or all at the first seek to the end."""

    def __init__(self, stream: ByteStream, cache: ObjectCache, place: str) -> None:
        self._below = self._stream = stream
        self._cache, self._place = cache, place
        self._part: FileIO | None = None
        self._begun = False

    def read(self, size: int = -1, /) -> bytes:
        """See ByteStream."""
        data = self._stream.read(size)
        self._keep(memoryview(data), ended=not data or size < 0)
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        """See ByteStream."""
        count = self._stream.readinto(buffer)
        self._keep(buffer[:count], ended=count == 0)
        return count

    def seekable(self) -> bool:
        """See io."""
        return isinstance(self._stream, Seekable) and self._stream.seekable()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """See io. A first seek to the end keeps the whole object; after any other seek it is not kept."""
        if whence == SEEK_END and not self._begun:
            self._keep_whole()
        self._give_up()
        self._begun = True
        stream: Any = self._stream
        return int(stream.seek(offset, whence))

    def tell(self) -> int:
        """See io."""
        stream: Any = self._stream
        return int(stream.tell())

    def close(self) -> None:
        """See ByteStream."""
        self._give_up()
        if self._stream is not self._below:
            self._stream.close()
        self._below.close()

    def _keep(self, data: memoryview, *, ended: bool) -> None:
        if not self._begun:
            self._begun = True
            self._part = self._cache.begin_part()
        if self._part is None:
            return
        if not self._cache.add_to(self._part, data):
            self._give_up()
        elif ended:
            part, self._part = self._part, None
            self._cache.end_part(part, self._place)

    def _keep_whole(self) -> None:
        below: Any = self._below
        size = below.seek(0, SEEK_END)
        below.seek(0)
        if size > WHOLE_BYTES or not self._cache.has_room(size):
            return
        ended = False
        while not ended and (self._part is not None or not self._begun):
            data = below.read(_AT_ONCE)
            ended = not data
            self._keep(memoryview(data), ended=ended)
        try:
            self._stream = FileIO(self._place)
        except OSError:  # The log has the reason.
            below.seek(0)

    def _give_up(self) -> None:
        if self._part is not None:
            part, self._part = self._part, None
            self._cache.end_part(part, None)


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
    """Return the folder that `cache_dir` names. Raises ChannelError if it is part of the channel or has an unknown `~user`."""
    try:
        root = Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise ChannelError(f"channel {channel.name!r}: cache_dir {str(folder)!r}: {error}") from error
    if channel.s3_uri is None and root.resolve().is_relative_to(channel.path.resolve()):
        raise ChannelError(
            f"channel {channel.name!r}: cache_dir {root} is inside the channel, so cached objects would be read as data; name"
            " another folder on a disk of this machine"
        )
    if is_remote(root):
        _log.warning("cache_dir %s is not on a disk of this machine: reading from there may save nothing", root)
    return root


def _remove_leftovers(parts: Path) -> None:
    """Remove the parts of killed processes. A locked part is being written."""
    for part in parts.iterdir():
        with suppress(OSError):
            if time.time() - part.stat().st_mtime < _NEW_SECONDS:
                continue
            with part.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
