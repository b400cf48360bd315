"""What a provider is asked to deliver: one channel of the request to one host of the run.

A provider is the local twin of one way in which SageMaker brings a channel into the container. Each is a module with one
function, `provide(delivery)`, a context manager: on entering, the channel is there under the host's `input/data`; on
leaving, everything it started (mount, FIFO, thread) is gone. `PROVIDERS` is the table.
"""

from __future__ import annotations

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
    environ: Mapping[str, str]  # AWS_* variables by which other programs (rclone, s3torchconnector) reach the same store
    remote: bool  # False for the embedded server on loopback


@dataclass(frozen=True)
class Delivery:
    """One channel for one host.

    `channel` is the InputDataConfig entry as the request has it, with `InputMode` filled in from the job where it was
    absent. `hosts` are those that share the channel (all of the job's, or those of its instance groups), `host` is one.
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

    @property
    def name(self) -> str:
        """The channel's name."""
        return str(self.channel["ChannelName"])

    @property
    def directory(self) -> Path:
        """The directory that `SM_CHANNEL_<NAME>` names; under Pipe it does not exist."""
        return self.data_dir / self.name
