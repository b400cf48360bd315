"""Whole objects: each object of the channel is one sample."""

from __future__ import annotations

from collections.abc import Iterator

from entrypoints.records.cursor import Cursor
from entrypoints.sample import ByteStream, Sample, whole_object

BOUNDARIES = False  # once joined, nothing tells where one object ends and the next begins


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """The one sample of an object; an empty object is a sample too. The position is 1 once it has been read."""
    if cursor is None:
        yield whole_object(stream.read(), key)
    elif cursor.start == 0:
        data = stream.read()
        cursor.position = 1
        yield whole_object(data, key)
