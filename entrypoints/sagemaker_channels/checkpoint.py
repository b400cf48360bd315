"""A state in torch's format as one file or one object of S3, such as a trained model. `Checkpoints` are for resuming."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from sagemaker_channels.checkpointing.place import Bucket, Folder, place_of


def save_checkpoint(state: Any, place: str | Path) -> None:
    """Save a checkpoint to a file or to an object, `s3://bucket/key`. If it fails, an earlier one there stays as it was.

    Args:
        state: Anything that `torch.save` accepts.
        place: The file or object, which is replaced.

    Raises:
        ChannelError: The file cannot be written, or S3 refuses the object or does not answer for `LAUNCHER_READ_WAIT_SECONDS`.
    """
    import torch

    folder, name = _folder_and_name(place)
    folder.write(name, partial(torch.save, state))


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

    folder, name = _folder_and_name(place)
    with folder.open(name) as file:
        return torch.load(file, map_location=map_location, weights_only=True)


def _folder_and_name(place: str | Path) -> tuple[Folder | Bucket, str]:
    """Return where a file or object is, and its name. Raises ValueError for a URI that names no object."""
    folder, name = os.path.split(place)
    if folder in ("s3:", "s3://") or (folder.startswith("s3://") and not name):
        raise ValueError(f"{place} is not a place for a checkpoint; give a file or s3://bucket/key")
    return place_of(folder or "."), name
