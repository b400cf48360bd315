"""Checkpoints: straight to the bucket by S3Checkpoint, or to a local directory that is never seen half written.

SageMaker copies `/opt/ml/checkpoints` to S3 while the job runs and back after a spot interruption; a file that is being
written would be copied as it is. So a local checkpoint is written under another name and renamed. In S3 an object
appears whole or not at all, and nothing is written to a local disk. What a file holds is torch's format in both cases.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from entrypoints.readers import s3


def save_checkpoint(state: Any, place: str | Path) -> None:
    """Saves what `torch.save` can to a file or to an object, `s3://bucket/key`; what was there is replaced.

    Raises OSError or S3Exception where it cannot be written; the last checkpoint is then still whole.
    """
    import torch

    if _in_s3(place):
        writer = _bucket().writer(str(place))
        try:
            torch.save(state, writer)
        except BaseException:
            # Its destructor would close it, and so put half a checkpoint in the place of the last whole one.
            writer.close = lambda: None
            raise
        writer.close()
        return
    file = Path(place)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def load_checkpoint(place: str | Path, map_location: Any = "cpu") -> Any:
    """What `save_checkpoint` saved there, its tensors on the device `map_location`.

    Tensors, containers and plain values only: torch runs no code out of a checkpoint. Raises FileNotFoundError where there
    is none.
    """
    import torch

    if not _in_s3(place):
        return torch.load(place, map_location=map_location, weights_only=True)
    reader = _bucket().reader(str(place))
    try:
        reader.read(1)  # begins the request; what has been read stays in the reader
        reader.seek(0)
    except s3.s3_exception() as error:
        # The connector has one exception for everything.
        if "does not exist" in str(error):
            raise FileNotFoundError(f"there is no checkpoint {place}: {error}") from error
        raise
    return torch.load(reader, map_location=map_location, weights_only=True)


def _in_s3(place: str | Path) -> bool:
    """Whether it is an object's URI, not a file; ValueError where it names no object."""
    bucket, _, key = str(place).removeprefix("s3://").partition("/")
    if not str(place).startswith("s3://"):
        return False
    if not bucket or not key:
        raise ValueError(f"a checkpoint is saved to a file or to s3://bucket/key, not to {place}")
    return True


def _bucket() -> Any:
    s3.require()
    from s3torchconnector import S3Checkpoint

    return S3Checkpoint(**s3.connection(os.environ))
