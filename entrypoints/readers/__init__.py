"""Readers: how the bytes of a channel arrive, and the table of the reader for each input mode.

A reader is a module with the members of `Reader`. A new one is a new file here and a line in READERS.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol

from entrypoints.errors import ChannelError
from entrypoints.job.environment import Channel
from entrypoints.order.sharding import Shard
from entrypoints.readers import fifo, mounted, s3
from entrypoints.sample import ByteStream


class Reader(Protocol):
    """The functions that a module of this package has."""

    @property
    def JOINED(self) -> bool:
        """Whether all objects arrive as one stream, which is read once a host and sharded by samples, not by objects."""
        ...

    def open_streams(self, channel: Channel, epoch: int, shard: Shard, /) -> Iterator[tuple[str | None, ByteStream]]:
        """Yield the shard's objects in an order that is the same in every process: key (None if unknown) and open stream.

        The caller closes each stream before it asks for the next.

        Raises:
            ChannelError: The channel does not exist.
        """
        ...

    def objects(self, channel: Channel, /) -> Iterable[Any]:
        """Return all objects of the channel in that order. Raises ChannelError, perhaps while read, if there is none."""
        ...

    def open_objects(
        self, channel: Channel, chosen: Iterable[Any], /
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        """Yield the streams of these objects, in this order. The caller closes each before it asks for the next."""
        ...

    def key_of(self, channel: Channel, item: Any, /) -> str:
        """Return the key of the samples of one of these objects."""
        ...


READERS: Mapping[str, Reader] = {
    "File": mounted,  # EFS and FSx for Lustre arrive as File too
    "FastFile": mounted,
    "Pipe": fifo,
    "S3Connector": s3,
}


def reader_of(channel: Channel) -> Reader:
    """Return the reader of a channel's input mode. Raises ChannelError for an unknown mode."""
    if channel.mode not in READERS:
        near = difflib.get_close_matches(channel.mode, READERS, 1)
        raise ChannelError(
            f"channel {channel.name!r}: input mode {channel.mode!r} is none of {', '.join(READERS)}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    return READERS[channel.mode]
