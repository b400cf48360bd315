"""Where checkpoints are stored: a folder, or a prefix in S3. Names are relative to it: `<checkpoint>/<file>`.

Both have the same methods. None of them depends on renaming or on the order in which files become visible.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sagemaker_channels.errors import ChannelError, MissingError
from sagemaker_channels.fetching.silence import warn
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.readers import connector_client, s3, s3_client
from sagemaker_channels.records.seeking import SeekableFile

_PIECE_BYTES = 8 << 20  # the client copies each piece
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
        """Return the files of all checkpoints with their sizes."""
        found = {}
        for file in self._path.glob("*/*"):
            with suppress(FileNotFoundError):  # Another host has just removed it.
                found[f"{file.parent.name}/{file.name}"] = file.stat().st_size
        return found

    def read(self, name: str) -> bytes:
        """Return a small file. Raises FileNotFoundError."""
        return (self._path / name).read_bytes()

    def open(self, name: str) -> Any:
        """Return a context of a file to seek and read in. Raises FileNotFoundError."""
        return (self._path / name).open("rb")

    def write(self, name: str, data: memoryview) -> None:
        """Store a file durably. Raises ChannelError."""
        file = self._path / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb", buffering=0) as stream:
                while data:
                    data = data[stream.write(data[:_PIECE_BYTES]) :]
                os.fsync(stream.fileno())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                remedy = "give a folder that this job may write, or s3://bucket/prefix"
                raise ChannelError(f"{file} cannot be written: {error.strerror}; {remedy}") from error
            file.unlink(missing_ok=True)
            raise ChannelError(
                f"{file}: the disk is full: {len(data):,} more bytes are needed, and {shutil.disk_usage(file.parent).free:,} "
                "are free; make room, keep fewer checkpoints, or save to a larger disk or to s3://bucket/prefix"
            ) from error

    def remove(self, checkpoint: str, first: str) -> None:
        """Remove a checkpoint, beginning with one of its files."""
        (self._path / checkpoint / first).unlink(missing_ok=True)
        shutil.rmtree(self._path / checkpoint, ignore_errors=True)


class Bucket:
    """A prefix in S3, by the connector's client."""

    def __init__(self, uri: str) -> None:
        connector_client.require()
        self._bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise ValueError(f"{uri} is not a place for checkpoints; give a folder or s3://bucket/prefix")
        self._prefix = f"{prefix.rstrip('/')}/".lstrip("/")  # S3 Express lists only what ends so.

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def sizes(self) -> dict[str, int]:
        """See Folder. Raises ChannelError."""
        listed = (info for page, _ in s3_client.pages(self._bucket, self._prefix) for info in page)
        return {info.key.removeprefix(self._prefix): info.size for info in listed}

    def read(self, name: str) -> bytes:
        """See Folder. Raises ChannelError."""
        with _missing_as_file(name):
            return s3_client.content(self._bucket, self._prefix + name)

    @contextmanager
    def open(self, name: str) -> Generator[Any, None, None]:
        """See Folder. Raises ChannelError."""
        with _missing_as_file(name), closing(s3.open_object(self._bucket, self._prefix + name)) as streams:
            yield SeekableFile(next(streams), None, at_once=False)

    def write(self, name: str, data: memoryview) -> None:
        """Store an object. Raises ChannelError."""

        def send(stream: Any) -> None:
            for start in range(0, len(data), _PIECE_BYTES):
                stream.write(data[start : start + _PIECE_BYTES])

        s3_client.upload(self._bucket, self._prefix + name, send, _UPLOAD_GBPS)

    def remove(self, checkpoint: str, first: str) -> None:
        """See Folder. Raises ChannelError."""
        prefix = f"{self._prefix}{checkpoint}/"
        keys = [info.key for page, _ in s3_client.pages(self._bucket, prefix) for info in page]
        for key in sorted(keys, key=lambda key: key != prefix + first):
            s3_client.delete(self._bucket, key)


def place_of(text: str) -> Folder | Bucket:
    """Return the place of a path or an S3 URI. Raises ValueError for a URI without a bucket, and for a file."""
    return Bucket(text) if text.startswith("s3://") else Folder(text)


def warn_unless_kept(place: Folder | Bucket) -> None:
    """Warn before a job's first save into SageMaker's checkpoint folder if that is missing, since then nothing keeps it."""
    environment = load_environment()
    folder = environment.checkpoint_dir
    if environment.job_name is not None and str(place) == str(folder) and not folder.exists():
        warn(
            f"{place} did not exist before this save, so this job seems to have no checkpoint_config, and its checkpoints are lost "
            'when it ends; add checkpoint_config: {s3_uri: s3://bucket/prefix} to the spec, or write Checkpoints("s3://...")'
        )


@contextmanager
def _missing_as_file(name: str) -> Generator[None, None, None]:
    try:
        yield
    except MissingError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", name) from error
