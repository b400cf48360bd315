"""How bytes arrive: one module per way, and the table that says which input mode is read by which.

A reader is a module with the members of `Reader`. A new way of arriving is a new file here and a line in READERS.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol

from entrypoints.errors import ChannelError
from entrypoints.job.environment import Channel
from entrypoints.order.sharding import Share
from entrypoints.readers import fifo, mounted, s3
from entrypoints.sample import ByteStream


class Reader(Protocol):
    """What a module of this package offers to those that read a channel."""

    @property
    def JOINED(self) -> bool:
        """Whether all objects come as one stream. It is read once a host, and shared by samples, not by objects."""
        ...

    def open_streams(self, channel: Channel, epoch: int, share: Share, /) -> Iterator[tuple[str | None, ByteStream]]:
        """The share's objects in an order that every process agrees on: key (None if unknown) and open stream.

        The caller closes each stream before it asks for the next. Raises ChannelError where the channel is not there.
        """
        ...

    def objects(self, channel: Channel, /) -> Iterable[Any]:
        """All objects of the channel in that order. Raises ChannelError, at the latest when read, where there are none to list."""
        ...

    def open_objects(
        self, channel: Channel, chosen: Iterable[Any], /
    ) -> Generator[tuple[str | None, ByteStream], None, None]:
        """The streams of some of these objects, in the order given; each is to be closed before the next is asked for."""
        ...

    def key_of(self, channel: Channel, item: Any, /) -> str:
        """The key that samples of one of these objects bear."""
        ...


READERS: Mapping[str, Reader] = {
    "File": mounted,  # EFS and FSx for Lustre arrive as File too
    "FastFile": mounted,
    "Pipe": fifo,
    "S3Connector": s3,
}


def reader_of(channel: Channel) -> Reader:
    """The reader of a channel's input mode; ChannelError for a mode that has none."""
    if channel.mode not in READERS:
        near = difflib.get_close_matches(channel.mode, READERS, 1)
        raise ChannelError(
            f"channel {channel.name!r}: input mode {channel.mode!r} is none of {', '.join(READERS)}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    return READERS[channel.mode]
