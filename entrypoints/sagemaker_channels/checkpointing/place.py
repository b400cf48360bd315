"""Where checkpoints and shards are stored: a folder, or a prefix in S3. Both have the same methods, and names are relative to them.

A file or object appears whole: SageMaker copies the files of /opt/ml/checkpoints also while they are written.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sagemaker_channels.errors import ChannelError, MissingError, check_path
from sagemaker_channels.formats.seeking import SeekableFile
from sagemaker_channels.sources import connector_client, s3, s3_client

_UPLOAD_GBPS = 4.0  # of a rank; a higher target buffers more in memory


class Folder:
    """A folder of a disk or of a mounted file system."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if self._path.is_file():
            raise ValueError(f"{path} is a file; give a folder or s3://bucket/prefix")

    def __str__(self) -> str:
        return str(self._path)

    def sizes(self) -> dict[str, int]:
        """Return the files of its folders with their sizes."""
        found = {}
        for file in self._path.glob("*/*"):
            with suppress(FileNotFoundError):  # Another rank has just removed it.
                found[f"{file.parent.name}/{file.name}"] = file.stat().st_size
        return found

    def open(self, name: str) -> Any:
        """Return a context of a file to seek and read in. Raises FileNotFoundError."""
        return (self._path / name).open("rb")

    def content(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None if there is none."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """Store durably what `write` writes to its argument, a stream.

        If that fails, an existing file stays as it was. Raises ChannelError, and what `write` raises.
        """
        file = self._path / name
        unfinished = file.with_name(f".{file.name}.{os.getpid()}.unfinished")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as stream:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.replace(file)
        except OSError as error:
            reason, remedy = error.strerror, "give a folder that this job may write, or an s3:// URI"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                reason = "the disk is full"
                remedy = "make room, keep fewer checkpoints, or save to a larger disk or to an s3:// URI"
                with suppress(FileNotFoundError):  # There was no room for the folder or an empty file, either.
                    written, free = unfinished.stat().st_size, shutil.disk_usage(file.parent).free
                    reason += f" after {written:,} bytes of it, and {free:,} are free"
            raise ChannelError(f"{file} cannot be written: {reason}", remedy=remedy) from error
        finally:
            with suppress(OSError):
                unfinished.unlink()

    def remove(self, name: str) -> None:
        """Remove a file, if it exists, and its folder with the last one."""
        file = self._path / name
        file.unlink(missing_ok=True)
        with suppress(OSError):  # It is not empty, or another rank has removed it.
            file.parent.rmdir()


class Bucket:
    """A prefix in S3, by the connector's client."""

    def __init__(self, uri: str) -> None:
        connector_client.require()
        self._bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise ValueError(f"{uri} is not a place for checkpoints; give a folder or s3://bucket/prefix")
        self._prefix = f"{prefix.rstrip('/')}/".lstrip("/")  # S3 Express lists only what ends so.

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def sizes(self) -> dict[str, int]:
        listed = (info for page, _ in s3_client.pages(self._bucket, self._prefix) for info in page)
        return {info.key.removeprefix(self._prefix): info.size for info in listed}

    @contextmanager
    def open(self, name: str) -> Generator[Any, None, None]:
        try:
            with closing(s3.open_object(self._bucket, self._prefix + name)) as streams:
                yield SeekableFile(next(streams), None, at_once=False)
        except MissingError as error:
            raise FileNotFoundError(errno.ENOENT, f"there is no such object: {error}", f"{self}/{name}") from error

    def content(self, name: str) -> bytes | None:
        """See Folder; by one request, so all of it is of one version. Raises ChannelError."""
        try:
            return s3_client.content(self._bucket, self._prefix + name)
        except MissingError:
            return None

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """See Folder; `write` is called again after a transient error."""
        s3_client.upload(self._bucket, self._prefix + name, write, _UPLOAD_GBPS)

    def remove(self, name: str) -> None:
        s3_client.delete(self._bucket, self._prefix + name)


def place_of(text: str) -> Folder | Bucket:
    """Return the place of a path or an S3 URI. Raises ValueError for a file or no bucket, and ChannelError for another URI."""
    if text.startswith("s3://"):
        return Bucket(text)
    check_path("the place of the checkpoints", text)
    return Folder(text)
