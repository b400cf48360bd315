"""Whole objects: each object of the channel is one sample."""

from __future__ import annotations

from collections.abc import Iterator

from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.formats.format import Format
from sagemaker_channels.sample import ByteStream, Sample, sample_of


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the object as one sample, also if it is empty. The position is 1 once it has been read."""
    if cursor.start == 0:
        data = stream.read()
        cursor.position = 1
        yield sample_of(data, key)


FORMAT = Format(
    name="objects",
    sample="a whole object's bytes in `data`; for a channel without a content type, or with any other",
    read=_read,
    count=1,
    named=True,
    boundaries=False,  # nothing marks the end of one object in a joined stream
)
