"""The storage kinds of channels. A new kind is one file in this folder and one row of `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from launcher.spec.channels.base import BaseChannel
from launcher.spec.channels.dataset import DatasetChannel
from launcher.spec.channels.efs import EFSChannel
from launcher.spec.channels.fsx_lustre import FSxLustreChannel
from launcher.spec.channels.s3 import S3Channel
from launcher.spec.channels.s3_connector import S3ConnectorChannel

KINDS: dict[str, type[BaseChannel]] = {  # the value of a channel's `source` -> its card
    "S3": S3Channel.complete(),
    "EFS": EFSChannel.complete(),
    "FSxLustre": FSxLustreChannel.complete(),
    "S3Connector": S3ConnectorChannel.complete(),
    "Dataset": DatasetChannel.complete(),
}


def source_of(value: Any) -> str:
    """Return the `source` of a channel as written; S3 if it states none, as the shorthand does."""
    if isinstance(value, BaseChannel):
        return str(value.source)
    source = value.get("source") if isinstance(value, dict) else None
    return "S3" if source is None else str(source)


def source_of_entry(entry: Mapping[str, Any]) -> str | None:
    """Return the `source` of the channel that an InputDataConfig entry comes from; None if no kind makes such entries."""
    return next((source for source, kind in KINDS.items() if kind.members(entry) is not None), None)


if TYPE_CHECKING:
    Channel = BaseChannel
else:
    Channel = Annotated[
        Union[tuple(Annotated[kind, Tag(source)] for source, kind in KINDS.items())],  # noqa: UP007 - made from a table
        Discriminator(source_of),
    ]
