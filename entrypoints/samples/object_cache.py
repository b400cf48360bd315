"""Objects kept on a local disk as they are read, so that the second epoch comes from there: `cache_dir`.

What is kept are the objects as they lie, not samples: so every order, shard and format reads the same cache, all ranks and
workers of a host share it, and an epoch that is resumed in its middle finds what was there. An object is written below
`parts` and moved to its place when all of it is there; one that is left early is not kept. Formats that begin at an
object's end (zip, Parquet) are given it once it is kept, if it has no more than `WHOLE_BYTES` and the disk has room;
larger ones are read where they lie, each time. A disk that is full ends the keeping, never the reading. What a process
leaves half written when it is killed, the next one that opens the cache removes.

An object of S3 is kept by its key, size and ETag, so a changed one is read anew, and so is one of which bytes were lost on
this disk. A file of a far mount is kept by its path alone, because asking for its time would cost what the cache is to
save: let such a cache live no longer than the job.
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

from entrypoints.errors import ChannelError
from entrypoints.fetching.listing import Listed
from entrypoints.job.environment import Channel
from entrypoints.readers import Reader
from entrypoints.readers.remote_file import is_remote
from entrypoints.records.cursor import Seekable
from entrypoints.sample import ByteStream

WHOLE_BYTES = 1 << 30  # of an object that is fetched whole before its format reads it

_KEPT_FREE = 0.05  # of the disk, for whatever else the job writes
_AT_ONCE = 4 << 20  # bytes
_NEW_SECONDS = 60.0  # a part so young may not have been locked yet
_log = logging.getLogger(__name__)


class ObjectCache:
    """The objects of one channel below a folder, which is made where it is missing; any number of processes may use it.

    Raises ChannelError where that folder can never keep anything.
    """

    def __init__(self, folder: str | os.PathLike[str], channel: Channel) -> None:
        said = f"{channel.name}\0{channel.s3_uri}\0{channel.path}"
        root = _absolute(folder, channel)
        self._folder = root / hashlib.sha256(said.encode()).hexdigest()[:16]
        self._parts = self._folder / "parts"
        self._full = False
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(self._parts)
            with tempfile.TemporaryFile(dir=self._parts):
                pass
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise ChannelError(
                    f"channel {channel.name!r}: nothing can be kept in cache_dir {root}: {error}; name a folder on a disk"
                    " of this machine that can be written to"
                ) from error
            self._stop(str(error))

    def open_objects(
        self, reader: Reader, channel: Channel, chosen: Iterable[Any]
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        """As the reader's own; what is kept comes from here, the rest through the reader, and is kept."""
        placed = ((item, self._place(item)) for item in chosen)
        for kept, items in groupby(placed, key=lambda pair: _is_kept(*pair)):
            if kept:
                for item, place in items:
                    yield reader.key_of(channel, item), FileIO(place)
                continue
            places: deque[str] = deque()  # of the items that the reader has asked for and not given yet
            with closing(reader.open_objects(channel, self._noting(items, places))) as streams:
                for key, stream in streams:
                    yield key, self._keeping(stream, places.popleft())

    def _noting(self, items: Iterable[tuple[Any, str]], places: deque[str]) -> Iterator[Any]:
        for item, place in items:
            places.append(place)
            yield item

    def _place(self, item: Any) -> str:
        return f"{self._folder}/{hashlib.sha256(repr(item).encode('utf-8', 'surrogateescape')).hexdigest()}"

    def _keeping(self, stream: ByteStream, place: str) -> ByteStream:
        return _Keeping(stream, self, place) if self.has_room(0) else stream

    def has_room(self, size: int) -> bool:
        """Whether an object of so many bytes may be kept. Says so in the log, once, where nothing more will be."""
        if self._full:
            return False
        try:
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

    # What a stream that is being kept asks for

    def begin_part(self) -> FileIO | None:
        """A file for an object to come, locked as long as it is open; None where none can be made."""
        try:
            descriptor, name = tempfile.mkstemp(dir=self._parts, prefix="part-")
            os.close(descriptor)
            part = FileIO(name, "r+")
            fcntl.flock(part, fcntl.LOCK_EX)
        except OSError as error:
            self._stop(str(error))
            return None
        return part

    def add_to(self, part: FileIO, data: memoryview) -> bool:
        """Writes to a part; False where that failed, and nothing more will be kept."""
        try:
            while len(data):
                data = data[part.write(data) :]
        except OSError as error:
            self._stop(str(error))
            return False
        return True

    def end_part(self, part: FileIO, place: str | None) -> None:
        """Moves a part to the place of its object, or removes it where there is none."""
        try:
            if place is None:
                os.unlink(part.name)  # noqa: PTH108 (names are plain strings here)
            else:
                os.replace(part.name, place)  # noqa: PTH105
        except OSError as error:
            self._stop(str(error))
        finally:
            part.close()


class _Keeping:
    """A stream whose bytes are written to a file as they pass, or before a format that goes to the end first reads them."""

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
        """Whether the stream below is."""
        return isinstance(self._stream, Seekable) and self._stream.seekable()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Goes elsewhere. Where that is the end, all of the object is kept first; else it is not kept, as not all of it passes."""
        if whence == SEEK_END and not self._begun:
            self._keep_whole()
        self._give_up()
        self._begun = True
        stream: Any = self._stream
        return int(stream.seek(offset, whence))

    def tell(self) -> int:
        """Where the stream below stands."""
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
        except OSError:  # the log says why
            below.seek(0)

    def _give_up(self) -> None:
        if self._part is not None:
            part, self._part = self._part, None
            self._cache.end_part(part, None)


def _is_kept(item: Any, place: str) -> bool:
    """Whether the object is there, and all of it where its size was listed. What is not is replaced when it has been read."""
    try:
        size = os.stat(place).st_size  # noqa: PTH116 (Path costs 5 us each)
    except FileNotFoundError:
        return False
    if not isinstance(item, Listed) or item.size == size:
        return True
    _log.warning("%s has %d bytes, not the %d of object %r: it is read anew", place, size, item.size, item.key)
    return False


def _absolute(folder: str | os.PathLike[str], channel: Channel) -> Path:
    """The folder that `cache_dir` names. Raises ChannelError where it cannot be meant."""
    try:
        root = Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise ChannelError(f"channel {channel.name!r}: cache_dir {str(folder)!r}: {error}") from error
    if channel.s3_uri is None and root.resolve().is_relative_to(channel.path.resolve()):
        raise ChannelError(
            f"channel {channel.name!r}: cache_dir {root} is a part of the channel, and what is kept there would be read as"
            " data; name a folder on a disk of this machine"
        )
    if is_remote(root):
        _log.warning("cache_dir %s is no disk of this machine: reading from there may save nothing", root)
    return root


def _remove_leftovers(parts: Path) -> None:
    """Removes what processes that were killed have left; what is locked is being written."""
    for part in parts.iterdir():
        with suppress(OSError):
            if time.time() - part.stat().st_mtime < _NEW_SECONDS:
                continue
            with part.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
