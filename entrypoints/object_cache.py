"""Objects kept on a local disk as they are read, so that the second epoch comes from there: `cache_dir`.

What is kept are the objects as they lie, not samples: so every order, share and format reads the same cache, all ranks and
workers of a host share it, and an epoch that is resumed in its middle finds what was there. An object is written beside its
place and moved there when it has been read to its end; one that is left early, or sought in, is not kept. A disk that is
full ends the keeping, never the reading.

The cache believes that objects do not change while it lives. Give each job a folder of its own, such as one below /tmp.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from entrypoints.environment import Channel
from entrypoints.readers import Reader
from entrypoints.records.cursor import Seekable
from entrypoints.sample import ByteStream

_KEPT_FREE = 0.05  # of the disk, for whatever else the job writes
_log = logging.getLogger(__name__)


class ObjectCache:
    """The objects of one channel below a folder, which is made where it is missing; any number of processes may use it."""

    def __init__(self, folder: Path, channel: Channel) -> None:
        said = f"{channel.name}\0{channel.s3_uri}\0{channel.path}"
        self._folder = folder / hashlib.sha256(said.encode()).hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._full = False

    def open_objects(
        self, reader: Reader, channel: Channel, chosen: Iterable[Any]
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        """As the reader's own; what is kept comes from here, the rest through the reader, and is kept."""
        placed = ((item, self._place(item)) for item in chosen)
        for kept, items in groupby(placed, key=lambda pair: os.path.exists(pair[1])):  # noqa: PTH110 (Path costs 5 us each)
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
        if self._full:
            return stream
        usage = shutil.disk_usage(self._folder)
        if usage.free < _KEPT_FREE * usage.total:
            self._stop(f"the disk has {usage.free:,} bytes left")
            return stream
        return _Keeping(stream, Path(place), self._stop)

    def _stop(self, reason: str) -> None:
        self._full = True
        _log.warning("%s: no more objects are kept here: %s", self._folder, reason)


class _Keeping:
    """A stream whose bytes are written to a file as they pass."""

    def __init__(self, stream: ByteStream, place: Path, stop: Callable[[str], None]) -> None:
        self._stream, self._place, self._stop = stream, place, stop
        self._file: BinaryIO | None = None
        self._name = Path()  # of the file, until all is in it
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
        """Goes elsewhere; the object is not kept then, as not all of it passes."""
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
        self._stream.close()

    def _keep(self, data: memoryview, *, ended: bool) -> None:
        try:
            if not self._begun:
                self._begun = True
                descriptor, name = tempfile.mkstemp(dir=self._place.parent, prefix="part-")
                self._file, self._name = os.fdopen(descriptor, "wb", buffering=0), Path(name)
            if self._file is None:
                return
            while len(data):
                data = data[self._file.write(data) :]
            if ended:
                self._name.replace(self._place)
                self._file.close()
                self._file = None
        except OSError as error:
            self._give_up()
            self._stop(str(error))

    def _give_up(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._name.unlink(missing_ok=True)
