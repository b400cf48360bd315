"""Checkpoints in a local folder or in S3, in torch's format.

SageMaker copies `/opt/ml/checkpoints` to S3 while the job runs, also files that are being written, and back after a spot
interruption. So a local checkpoint is written under another name and renamed. An S3 object appears whole or not at all, and is
uploaded by the connector's client without a local file.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from sagemaker_channels.errors import MissingError
from sagemaker_channels.readers import connector_client, s3, s3_client
from sagemaker_channels.records.seeking import SeekableFile


def save_checkpoint(state: Any, place: str | Path) -> None:
    """Save a checkpoint to a file or to an object, `s3://bucket/key`. If it fails, an earlier one there stays as it was.

    Args:
        state: Anything that `torch.save` accepts.
        place: The file or object, which is replaced.

    Raises:
        OSError: The file cannot be written. For a full disk the message has the bytes that the checkpoint needs.
        ChannelError: S3 refuses the object, or does not answer for `LAUNCHER_READ_WAIT_SECONDS`.
    """
    import torch

    if bucket_and_key := _in_s3(place):
        connector_client.require()
        s3_client.upload(*bucket_and_key, partial(torch.save, state))
        return
    file = Path(place)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.unfinished")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__  # torch raises its own RuntimeError.
        if not isinstance(cause, OSError):
            raise
        if cause.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise cause from None
        unfinished.unlink(missing_ok=True)
        raise OSError(cause.errno, _no_space(state, file), str(file)) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _no_space(state: Any, file: Path) -> str:
    import torch

    needed: Any = _Size()
    torch.save(state, needed)
    folder = next(folder for folder in file.parents if folder.exists())
    return (
        f"the disk is full: this checkpoint needs {needed.count:,} bytes in addition to the last one, and "
        f"{shutil.disk_usage(folder).free:,} are free; make room, or save to a larger disk or to s3://bucket/key"
    )


class _Size:
    """A stream that only counts what is written to it."""

    count = 0

    def write(self, data: bytes) -> int:
        self.count += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing."""


def load_checkpoint(place: str | Path, map_location: Any = "cpu") -> Any:
    """Load a checkpoint of tensors, containers and plain values; torch runs no code from it.

    Args:
        place: The file or object.
        map_location: The device of its tensors.

    Raises:
        FileNotFoundError: There is no such file or object.
        ChannelError: S3 refuses the object, or does not answer for `LAUNCHER_READ_WAIT_SECONDS`.
    """
    import torch

    if not (bucket_and_key := _in_s3(place)):
        return torch.load(place, map_location=map_location, weights_only=True)
    connector_client.require()
    try:
        with closing(s3.open_object(*bucket_and_key)) as streams:
            file: Any = SeekableFile(next(streams), None, at_once=False)
            return torch.load(file, map_location=map_location, weights_only=True)
    except MissingError as error:
        raise FileNotFoundError(f"there is no checkpoint {place}: {error}") from error


def _in_s3(place: str | Path) -> tuple[str, str] | None:
    """Return an object's bucket and key; None for a file. Raises ValueError for a URI that names no object."""
    if not str(place).startswith("s3://"):
        return None
    bucket, _, key = str(place).removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise ValueError(f"{place} is not a place for a checkpoint; give a file or s3://bucket/key")
    return bucket, key
