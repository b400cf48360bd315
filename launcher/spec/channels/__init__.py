"""The storage kinds a channel can have. A new kind is one file beside this one and one row of `KINDS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from launcher.spec.channels.base import BaseChannel
from launcher.spec.channels.dataset import DatasetChannel
from launcher.spec.channels.efs import EFSChannel
from launcher.spec.channels.fsx_lustre import FSxLustreChannel
from launcher.spec.channels.s3 import S3Channel
from launcher.spec.channels.s3_connector import S3ConnectorChannel

KINDS: dict[str, type[BaseChannel]] = {  # the value of a channel's `source` -> what may be written
    "S3": S3Channel,
    "EFS": EFSChannel,
    "FSxLustre": FSxLustreChannel,
    "S3Connector": S3ConnectorChannel,
    "Dataset": DatasetChannel,
}


def source_of(value: Any) -> str:
    """The kind of a channel as written; S3 where it does not say, as in the shorthand."""
    if isinstance(value, BaseChannel):
        return str(value.source)
    source = value.get("source") if isinstance(value, dict) else None
    return "S3" if source is None else str(source)


if TYPE_CHECKING:
    Channel = BaseChannel
else:
    Channel = Annotated[
        Union[tuple(Annotated[kind, Tag(source)] for source, kind in KINDS.items())],  # noqa: UP007 - made from a table
        Discriminator(source_of),
    ]
