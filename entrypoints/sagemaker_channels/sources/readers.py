"""The table of the reader for each input mode.

A reader is a module with the functions of `Reader`. A new one is a new file here and a line in READERS.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Protocol

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources import mounted, s3
from sagemaker_channels.sources.items import Items


class Reader(Protocol):
    """The functions of a reader's module."""

    def objects(self, channel: Channel, epoch: int, /) -> Items[Any]:
        """Return all objects of the channel, in an order that is the same in every process, listed as they are read.

        A reader that lists them again in each epoch compares the hosts' objects only within one.

        Raises:
            ChannelError: Perhaps only while the objects are read: the channel does not exist.
        """

    def open_objects(
        self, channel: Channel, chosen: Iterable[Any], /
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        """Yield the keys and streams of these objects, in this order. The caller closes each before it asks for the next."""

    def key_of(self, channel: Channel, item: Any, /) -> str:
        """Return the key of the samples of one of these objects."""

    def pin_of(self, channel: Channel, item: Any, /) -> tuple[int, int]:
        """Return an object's size, and a number that another content would probably not have; 0 if it is unknown."""


# None: the mode sends a host all objects as one stream, which cannot be listed and is sharded by samples (see fifo.py).
READERS: Mapping[str, Reader | None] = {
    "File": mounted,  # EFS and FSx for Lustre arrive as File, too
    "FastFile": mounted,
    "Pipe": None,
    "S3Connector": s3,
}


def reader_of(channel: Channel) -> Reader | None:
    """Return the reader of a channel's input mode; None for a Pipe. Raises ChannelError for an unknown mode."""
    if channel.mode not in READERS:
        raise ChannelError(f"input mode {channel.mode!r} is not one of {', '.join(READERS)}", channel=channel.name)
    return READERS[channel.mode]
