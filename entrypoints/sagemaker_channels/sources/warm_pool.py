"""`cache_dir="warm-pool"`: the object cache in the directory that SageMaker keeps for the next job of a warm pool.

A job finds there what earlier ones kept, so only objects with an ETag are kept: those of S3Connector channels, not the files of a
mount. If the disk is full, objects that this job has not used are removed, the oldest first.

Source: developer guide, train-warm-pools, "Using persistent cache".
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from sagemaker_channels import contract
from sagemaker_channels.job.environment import Channel, Environment
from sagemaker_channels.sources.silence import warn_once

NAME = "warm-pool"  # of this cache, in place of a folder
_OBJECTS = "launcher-objects"  # our folder there; pip's cache is beside it


class WarmPool:
    """The folder of the objects, and which of them are old."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self.folder = folder / _OBJECTS
        config = environment.root / contract.CONFIG_DIR
        self._job_began = config.stat().st_mtime if config.is_dir() else time.time()

    def note_use(self, place: str) -> None:
        """Record that this job uses an object, if it is there."""
        with suppress(OSError):
            os.utime(place)

    def make_room(self, size: float) -> bool:
        """Remove objects that this job has not used, about `size` bytes of them; return whether there were any."""
        old = []
        for file in self.folder.rglob("*"):
            with suppress(OSError):  # Another process has removed it.
                status = file.stat()
                if file.is_file() and status.st_mtime < self._job_began:
                    old.append((status.st_mtime, status.st_size, file))
        left = size
        for _, count, file in sorted(old, key=itemgetter(0)):
            if left <= 0:
                break
            with suppress(OSError):
                file.unlink()
                left -= count
        return bool(old)


def warm_pool(channel: Channel, environment: Environment) -> WarmPool | None:
    """Return the job's warm pool; None, with a warning, if it has none or cannot keep the channel's objects."""
    folder = os.environ.get(contract.WARM_POOL_VARIABLE)
    if folder and channel.s3_uri is not None:
        return WarmPool(Path(folder), environment)
    why = f"{contract.WARM_POOL_VARIABLE} is not set; set resource_config.keep_alive_period_in_seconds"
    if folder:
        why = (
            "the files of a mount have no ETag, which shows the next job whether they changed; use source: S3Connector"
        )
    warn_once(f"channel {channel.name!r}: objects are not kept in the {NAME}: {why}, or name a folder as cache_dir")
    return None
