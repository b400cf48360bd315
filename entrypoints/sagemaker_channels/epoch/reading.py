"""How a channel is read."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from sagemaker_channels.errors import check_path, expect, whole_number


@dataclass(frozen=True)
class Reading:
    """How a channel is read: order and cache.

    Attributes:
        seed: Seed of the shuffle; None keeps the order of keys.
        block: Samples that are shuffled together; 1 shuffles objects only.
        block_bytes: Size at which a block ends, too, so that large samples do not fill the memory.
        cache_dir: A folder on a local disk that keeps objects for later epochs.
        shards: Into how many shards an epoch is divided, if not into one for each reader. With a number that these divide, any
            number of ranks reads the same samples in each step.
        skip_damaged: How many damaged or undecodable samples each reader may skip in an epoch (formats/damage.py); each rank, or
            each of its workers, is a reader. 0: the first is an error.
    """

    seed: int | None = None
    block: int = 1000
    block_bytes: int = 128_000_000
    cache_dir: str | os.PathLike[str] | None = None
    shards: int | None = None
    skip_damaged: int = 0

    def __post_init__(self) -> None:
        least = {"seed": None, "block": 1, "block_bytes": 1, "shards": 1, "skip_damaged": 0}
        for name, limit in least.items():
            value = getattr(self, name)
            if value is not None or name not in ("seed", "shards"):
                object.__setattr__(self, name, whole_number(name, value, limit))
        # An empty cache_dir would be the script's working directory.
        named = isinstance(self.cache_dir, str | os.PathLike) and self.cache_dir != ""
        expect(self.cache_dir is None or named, "cache_dir", self.cache_dir, "the path of a folder")
        check_path("cache_dir", os.fspath(self.cache_dir or ""))

    @classmethod
    def of(cls, how: dict[str, Any]) -> Reading:
        """Return the reading of some keyword arguments. Raises TypeError, with the known names, for others."""
        known = [field.name for field in fields(cls)]
        for name in how.keys() - set(known):
            raise TypeError(f"{name!r} is not an argument here; how a channel is read is said by {', '.join(known)}")
        return cls(**how)
