"""What a provider is asked to deliver: one channel of the request to one host of the run.

A provider is the local twin of one way in which SageMaker brings a channel into the container. Each is a module with
one function, `provide(*deliveries)`, a context manager: on entering, the channels are under their hosts' `input/data`;
on leaving, everything it made (files, mount, FIFO, process, thread) is gone. `launcher.local.providers` has the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from launcher.local.data.selection import S3Object, list_objects
from launcher.s3.reading import Stream
from launcher.s3.uri import Place


class Objects(Protocol):
    """The objects that a run reads. Each method raises RefusedError if they cannot be read."""

    where: str  # the folder or endpoint, for messages

    def keys(self, place: Place) -> Iterator[tuple[str, int]]:
        """Key and bytes of every object whose key begins with the place's, in S3's order."""

    def sizes(self, places: Iterable[Place]) -> Iterator[int]:
        """Bytes of each object, asked for as they are taken; not many more places than that are taken."""

    def read(self, place: Place) -> Stream:
        """One object's bytes, in chunks."""

    def copy(self, place: Place, target: int) -> Iterator[int]:
        """Write one object to a file descriptor; yields the bytes written since the last time."""

    def folder(self, place: Place, count: int) -> Path | None:
        """The folder on this disk that holds `count` objects and nothing else, if there is one and it can be shown as it is."""

    def missing(self, place: Place) -> str:
        """Why no object begins with the place's key, and what there is instead."""


@dataclass(frozen=True)
class Store:
    """The S3 that a run reads from: the `--data` folder, or what the environment names."""

    objects: Objects
    environ: Mapping[
        str, str
    ]  # AWS_* variables by which other programs (rclone, s3torchconnector) reach the same store
    remote: bool  # False for the folder
    _listed: dict[tuple[str, str, int | None], list[S3Object]] = field(default_factory=dict)

    def listed(self, channel: Mapping[str, Any], sample: int | None = None) -> list[S3Object]:
        """The channel's objects as `list_objects` finds them; listed once per run, however many hosts read them."""
        source = channel["DataSource"]["S3DataSource"]
        asked = (source["S3DataType"], source["S3Uri"], sample)
        if asked not in self._listed:
            self._listed[asked] = list_objects(channel, self.objects, sample)
        return self._listed[asked]


@dataclass(frozen=True)
class BindMount:
    """A directory of this machine that the runner is to show at `target`, an empty directory that exists."""

    source: Path
    target: Path
    read_only: bool
    written: Path | None = None  # an empty directory for an overlay: what the job writes goes there, not to the source


def _log_error(error: Exception) -> None:
    logging.getLogger(__name__).error("a channel failed while the job was reading it: %s", error, exc_info=error)


@dataclass(frozen=True)
class Delivery:
    """One channel for one host.

    `channel` is the InputDataConfig entry as the request has it, with `InputMode` filled in from the job where it was
    absent. `hosts` are those that share the channel (all of the job's, or those of its instance groups), `host` is one.

    The three callbacks are called from the provider's threads, several at a time: they must be quick and thread-safe.
    """

    channel: Mapping[str, Any]
    host: str
    hosts: tuple[str, ...]
    data_dir: Path  # the host's input/data
    scratch: Path  # a directory of the run's own for caches and logs, not seen by the job
    store: Store
    file_systems: Mapping[str, Path]  # FileSystemId -> the directory that stands for its root
    namespaces: bool = False  # whether the runner makes the mounts that the provider yields
    sample: int | None = None  # take the first N objects only
    on_bytes: Callable[[int], None] = lambda count: None  # progress: bytes delivered since the last call
    on_warning: Callable[[str], None] = lambda text: None  # what is not faithful, and what would make it so
    on_error: Callable[[Exception], None] = _log_error  # after the start: the channel cannot go on, so fail the job

    @property
    def name(self) -> str:
        """The channel's name."""
        return str(self.channel["ChannelName"])

    @property
    def directory(self) -> Path:
        """The directory that `SM_CHANNEL_<NAME>` names; under Pipe it does not exist."""
        return self.data_dir / self.name
