"""`cache_dir`: objects kept on a local disk when they are first read, for later epochs.

Whole objects are kept, not samples, so every order, shard and format uses the same cache, and all ranks and workers of a host
share it. An object is copied to a file below `parts`, which is renamed when it is complete, and read from there. A full disk ends
caching, not reading. Files that a killed process left half written are removed by the next one that opens the cache.

An S3 object is identified by key, size and ETag, so a changed one is read again. A file of a remote mount is identified by its path
alone, because asking for its time would cost what the cache saves: such a cache should not outlive the job.

`cache_dir="warm-pool"` is the directory that SageMaker keeps for the next job of a warm pool, which finds there what earlier jobs
kept; so only S3 objects are kept (developer guide, train-warm-pools, "Using persistent cache").
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from io import BytesIO, FileIO
from itertools import groupby
from pathlib import Path
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.writing import replacing
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.job.process_identity import file_name_of, remove_leftovers
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources.listing import Listed
from sagemaker_channels.sources.readers import Reader
from sagemaker_channels.sources.remote_file import is_remote
from sagemaker_channels.sources.silence import warn_once

WARM_POOL = "warm-pool"  # in place of a folder

_OBJECTS = "launcher-objects"  # our folder in a warm pool's directory; pip's cache is beside it
KEPT_FREE = 0.05  # share of the disk that stays free for the job's other files
_AT_ONCE = 4 << 20  # bytes
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
    """The cached objects of one channel. Any number of processes may use the same folder, which is made if it is missing.

    Raises ChannelError if the folder is a part of the channel, or cannot be written to; if that `may_fail`, it warns and keeps
    nothing.
    """

    def __init__(self, folder: str | os.PathLike[str], channel: Channel, *, may_fail: bool = False) -> None:
        self._full, root = False, _absolute(folder, channel)
        identity = channel.s3_uri or f"{channel.name}\0{channel.path}"
        self._folder = root / hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._parts = self._folder / "parts"
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self._parts, "")
            tempfile.TemporaryFile(dir=self._parts).close()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) and not may_fail:
                raise ChannelError(
                    f"cannot write to cache_dir {root}: {error}",
                    channel=channel.name,
                    remedy="name a writable folder on a disk of this machine",
                ) from error
            self._stop(error)

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
                yield key, self._kept(stream, place) if self._has_room() else stream

    def _kept(self, stream: Any, place: str) -> ByteStream:
        """Return the file to which a stream is copied, or the stream if that fails; an error of the stream itself follows then."""
        try:
            first = stream.read(_AT_ONCE)
            part = f"{self._parts}/{file_name_of(os.getpid())}-{threading.get_ident()}-{Path(place).name}"
            with replacing(place, part), open(part, "xb") as file:  # noqa: PTH123 (names are plain strings here)
                file.write(first)
                shutil.copyfileobj(stream, file, _AT_ONCE)
                size = file.tell()
            stream.close()
            return BytesIO(first) if size == len(first) else FileIO(place)
        except OSError as error:
            self._stop(error)
            stream.seek(0)
            return stream  # type: ignore[no-any-return]

    def _place(self, item: Any) -> str:
        return f"{self._folder}/{hashlib.sha256(repr(item).encode('utf-8', 'surrogateescape')).hexdigest()}"

    def _has_room(self) -> bool:
        if self._full:
            return False
        try:
            usage = shutil.disk_usage(self._folder)
            if usage.free < KEPT_FREE * usage.total:
                self._stop(f"the disk has {usage.free:,} bytes left")
        except OSError as error:
            self._stop(error)
        return not self._full

    def _stop(self, reason: object) -> None:
        self._full = True
        _log.warning("%s: no more objects are kept here: %s", self._folder, reason)


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
