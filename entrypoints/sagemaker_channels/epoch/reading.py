"""How a channel is read, and what a reader reads of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sagemaker_channels.epoch.states import Listing
from sagemaker_channels.errors import RESTART, ChannelError, check_path, expect, in_channel, whole_number
from sagemaker_channels.formats import Format
from sagemaker_channels.formats.damage import Damage
from sagemaker_channels.job.environment import Channel


@dataclass(frozen=True)
class Reading:
    """How a channel is read: order and cache.

    Attributes:
        seed: Seed of the shuffle; None keeps the order of keys.
        block: Samples that are shuffled together; 1 shuffles objects only.
        block_bytes: Size at which a block ends, too, so that large samples do not fill the memory.
        cache_dir: A folder on a local disk that keeps objects for later epochs.
        shards: Into how many shards an epoch is divided, if not into one for each reader. With a number that these divide, any
            number of ranks reads the same samples in each step (see README.md).
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
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number("seed", self.seed))
        object.__setattr__(self, "block", whole_number("block", self.block, 1))
        object.__setattr__(self, "block_bytes", whole_number("block_bytes", self.block_bytes, 1))
        if self.shards is not None:
            object.__setattr__(self, "shards", whole_number("shards", self.shards, 1))
        object.__setattr__(self, "skip_damaged", whole_number("skip_damaged", self.skip_damaged, 0))
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


def changed(what: str) -> ChannelError:
    """Return the error for data that are not those of a state; `what` is in words."""
    return ChannelError(f"{what}: the data has changed", remedy=RESTART)


class Source:
    """What the readers of an epoch read of a channel. ObjectSource and StreamSource are its kinds.

    Args:
        channel: The channel.
        epoch: The epoch.
        form: The format that splits it into samples.
        reading: Order and cache.
        damage: What is skipped.
        host: This host's number and the number of hosts, if what is read is of this host alone.
    """

    begun = 0  # how far its list of objects must be the same when reading resumes
    key: str | None = None  # of the object that is being read
    owed: Any = None  # the reader whose next sample was yielded in part

    def __init__(
        self,
        channel: Channel,
        epoch: int,
        form: Format,
        reading: Reading,
        damage: Damage,
        host: tuple[int, int] | None,
    ) -> None:
        self.channel, self.epoch, self.form, self.damage, self.host = channel, epoch, form, damage, host
        self.who = f"channel {channel.name!r}"
        self.seed, self.block, self.block_bytes = reading.seed, reading.block, reading.block_bytes

    def of_host(self, history: Sequence[Any], index: int, count: int) -> tuple[Any, int, int]:
        """Return the history and number of a reader among those of its host, if each host deals items of its own.

        Reader `index` is of host `index` modulo the number of hosts.
        """
        if self.host is None:
            return history, index, count
        number, hosts = self.host
        return [deal[number::hosts] for deal in history], index // hosts, count // hosts

    def named(self, error: Exception) -> Exception:
        """Return an error that names the channel, and for one of the system the object at or after which it occurred."""
        name = self.channel.name
        if isinstance(error, ChannelError):
            return in_channel(error, name)
        where = "" if self.key is None else f" at or after object {self.key!r}"
        found = ChannelError(f"channel {name!r} cannot be read{where}: {error}")
        found.channel, found.object = name, self.key
        return found

    def listing_of(self, begun: Any) -> Listing:
        """Return the digests of what `begun` says."""
        return {}

    def expect(self, listing: Listing) -> None:
        """Compare the objects with these digests before the first is read."""
