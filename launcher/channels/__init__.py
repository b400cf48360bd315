"""The storage kinds a channel can have. A new kind is one file beside this one and one row of `KINDS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from launcher.channels.base import BaseChannel
from launcher.channels.dataset import DatasetChannel
from launcher.channels.efs import EFSChannel
from launcher.channels.fsx_lustre import FSxLustreChannel
from launcher.channels.s3 import S3Channel
from launcher.channels.s3_connector import S3ConnectorChannel
from launcher.values import Choice

KINDS: dict[str, type[BaseChannel]] = {  # the value of a channel's `source` -> what may be written
    "S3": S3Channel,
    "EFS": EFSChannel,
    "FSxLustre": FSxLustreChannel,
    "S3Connector": S3ConnectorChannel,
    "Dataset": DatasetChannel,
}


def kind_of(channel: Any) -> type[BaseChannel] | None:
    """The kind of a channel as written: S3 if it names none; None if it names one that does not exist."""
    source = channel.get("source") if isinstance(channel, dict) else None
    return KINDS.get("S3" if source is None else str(source))


if TYPE_CHECKING:
    Channel = BaseChannel
else:
    Channel = Annotated[Any, Choice(kind_of, tuple(KINDS.values()))]
