"""Where resharding writes: a prefix in S3, or a folder of this machine, which needs no S3 client.

An object or file has its name when all of it is stored, and not before. All methods raise ChannelError or OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sagemaker_channels.errors import MissingError
from sagemaker_channels.fetching.schedule import Limits
from sagemaker_channels.readers import s3, s3_client
from sagemaker_channels.sample import ByteStream

_VERIFYING = Limits(held_bytes=4 << 20, piece_bytes=1 << 20)  # far ahead would take 300 MB of memory
_UPLOAD_GBPS = 2.0  # more takes hundreds of MB of memory


class Prefix:
    """Objects below `s3://bucket/folder/`."""

    def __init__(self, uri: str) -> None:
        self._bucket, _, self._key = uri.removeprefix("s3://").partition("/")

    def content(self, name: str) -> bytes | None:
        """Return what is stored under a name; None if there is nothing."""
        try:
            return s3_client.content(self._bucket, self._key + name)
        except MissingError:
            return None

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """Store what `write` writes to its argument, a stream, in place of what the name had."""
        s3_client.upload(self._bucket, self._key + name, write, _UPLOAD_GBPS)

    @contextmanager
    def opened(self, name: str) -> Iterator[ByteStream]:
        """Yield the stream of what is stored under a name."""
        with closing(s3.open_object(self._bucket, self._key + name, _VERIFYING)) as streams:
            yield next(streams)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all that is stored below `folder/`, by the names below it."""
        prefix = f"{self._key}{folder}/"
        found = (info for page, _ in s3_client.pages(self._bucket, prefix) for info in page)
        return {info.key.removeprefix(prefix): info.size for info in found}


class Folder:
    """Files below a folder of this machine, with the methods of Prefix."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def content(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        file = self._path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")  # not listed: an interrupted run leaves it
        with part.open("wb") as stream:
            write(stream)
        part.replace(file)

    def opened(self, name: str) -> Any:
        return (self._path / name).open("rb", buffering=0)

    def sizes(self, folder: str) -> dict[str, int]:
        root = self._path / folder
        files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return {path.relative_to(root).as_posix(): path.stat().st_size for path in files}


def store_of(place: str) -> Prefix | Folder:
    """Return the store of `s3://bucket/folder/` or of a folder's path."""
    return Prefix(place) if place.startswith("s3://") else Folder(place)
