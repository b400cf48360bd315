"""What a provider delivers: one channel of the request to one host of the run.

A provider is the local twin of one way in which SageMaker delivers a channel to the container (`launcher.local.providers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from launcher.local.data.object_stores import Objects
from launcher.local.data.selection import S3Object, epoch_order, list_objects
from launcher.request.view import is_sharded, s3_source
from launcher.s3.manifests import AugmentedManifest

T = TypeVar("T")


@dataclass(frozen=True)
class Store:
    """The S3 that a run reads from: the `--data` folder, or the store that the environment names."""

    objects: Objects
    environ: Mapping[str, str]  # AWS_* variables with which other programs (rclone, s3torchconnector) reach it
    remote: bool  # False for the folder
    _listed: dict[tuple[str, str, int | None], Sequence[S3Object]] = field(default_factory=dict)

    def listed(self, channel: Mapping[str, Any], sample: int | None = None) -> Sequence[S3Object]:
        """Return the channel's objects as `list_objects` does; they are listed once per run, however many hosts read them."""
        source = s3_source(channel)
        asked = (source["S3DataType"], source["S3Uri"], sample)
        if asked not in self._listed:
            self._listed[asked] = list_objects(channel, self.objects, sample)
        return self._listed[asked]

    def unlisted(self) -> Store:
        """Return the same store, which lists again."""
        return replace(self, _listed={})

    def total_bytes(self, channel: Mapping[str, Any], sample: int | None = None) -> int:
        """Return the bytes that all hosts together read in one epoch of a channel. Raises RefusedError as `list_objects` does."""
        source = s3_source(channel)
        if source["S3DataType"] != "AugmentedManifestFile":
            return sum(found.size for found in self.listed(channel, sample))
        with closing(
            AugmentedManifest(self.objects.read, source["S3Uri"], source["AttributeNames"], sample)
        ) as manifest:
            inline, places = 0, []
            for value in (value for index in range(len(manifest)) for value in manifest.values(index)):
                if isinstance(value, bytes):
                    inline += len(value)
                else:
                    places.append(value)
        return inline + sum(self.objects.sizes(places))


@dataclass(frozen=True)
class BindMount:
    """A directory of this machine that the runner mounts at `target`, an empty directory that exists."""

    source: Path
    target: Path
    read_only: bool
    written: Path | None = None  # an empty directory for an overlay: the job writes into it, not into the source

    def absolute(self) -> BindMount:
        """Return the same mount with absolute paths."""
        return replace(self, source=self.source.absolute(), target=self.target.absolute())


def _log_error(error: Exception) -> None:
    logging.getLogger(__name__).error("a channel failed while the job was reading it: %s", error, exc_info=error)


@dataclass(frozen=True)
class Delivery:
    """One channel for one host. Providers call the callbacks from several threads: they must be quick and thread-safe."""

    channel: Mapping[str, Any]  # the InputDataConfig entry, with the job's `InputMode` if it states none
    host: str
    hosts: tuple[str, ...]  # those that share the channel: all hosts of the job, or of its instance groups
    data_dir: Path  # the host's input/data
    scratch: Path  # a directory of the run for caches and logs, not visible to the job
    store: Store
    file_systems: Mapping[str, Path]  # FileSystemId -> the directory that stands for its root
    namespaces: bool = False  # whether the runner mounts what the provider yields; otherwise it makes links and copies
    overlays: bool = False  # whether it can mount an overlay
    other_users: bool = False  # whether the job can run as another user of this machine
    sample: int | None = None  # take only N of the objects, evenly spaced
    # How the channel arrives here, and whether that is as in SageMaker.
    on_delivered: Callable[[str, bool], None] = lambda how, same: None
    on_bytes: Callable[[int], None] = lambda count: None  # progress: bytes delivered since the last call
    on_warning: Callable[[str], None] = lambda text: None  # a difference from SageMaker, and how to avoid it
    on_error: Callable[[Exception], None] = _log_error  # the channel failed after the start, so the job must fail

    @property
    def name(self) -> str:
        """The channel's name."""
        return str(self.channel["ChannelName"])

    @property
    def directory(self) -> Path:
        """The directory that `SM_CHANNEL_<NAME>` names; under Pipe it does not exist."""
        return self.data_dir / self.name

    @property
    def is_same_for_all_hosts(self) -> bool:
        """Whether every host gets the same objects."""
        return len(self.hosts) == 1 or not is_sharded(self.channel)

    def select(self, items: Sequence[T], epoch: int = 0) -> list[T]:
        """Return the items that this host gets in an epoch, in order.

        The shuffle comes before the split, so that under ShardedByS3Key a host gets other objects in the next epoch, as the
        description of CreateTrainingJob's ShuffleConfig says. A shard takes every n-th item, since neighbours in a listing tend
        to have one kind and size.
        """
        ordered = list(items)
        if shuffle := self.channel.get("ShuffleConfig"):
            ordered = epoch_order(ordered, shuffle["Seed"], epoch)
        return ordered if self.is_same_for_all_hosts else ordered[self.hosts.index(self.host) :: len(self.hosts)]
