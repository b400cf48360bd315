"""What a provider is asked to deliver: one channel of the request to one host of the run.

A provider is the local twin of one way in which SageMaker brings a channel into the container. Each is a module with
one function, `provide(delivery)`, a context manager: on entering, the channel is there under the host's `input/data`;
on leaving, everything it made (files, mount, FIFO, process, thread) is gone. `launcher.local.providers` has the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True)
class Store:
    """The S3 endpoint a run reads from: the embedded server, or what the environment names."""

    client: S3Client
    environ: Mapping[
        str, str
    ]  # AWS_* variables by which other programs (rclone, s3torchconnector) reach the same store
    remote: bool  # False for the embedded server on loopback


@dataclass(frozen=True)
class BindMount:
    """A directory of this machine that the runner is to show at `target`, an empty directory that exists."""

    source: Path
    target: Path
    read_only: bool


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
