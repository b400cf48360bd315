"""Where a record ends: one module per format, and the table that says which content type is which format.

A format is a module with the members of `Format`, or an object with them where there is something to choose
(`options.py`). A new one is a new file here and a line in FORMATS; the tests that hold for every format run over the table.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Protocol

from entrypoints.errors import ChannelError
from entrypoints.records import objects, options
from entrypoints.records.archives import tar, zip_members
from entrypoints.records.cursor import Cursor
from entrypoints.records.parquet import parquet
from entrypoints.records.recordio import image_recordio, recordio, recordio_protobuf
from entrypoints.records.text import augmented, csv_rows, json_lines, lines
from entrypoints.records.tfrecord import example, tfrecord
from entrypoints.sample import ByteStream, Sample


class Format(Protocol):
    """What a module of this package offers to those that read a channel."""

    @property
    def BOUNDARIES(self) -> bool:
        """Whether records can be told apart in a stream of several objects joined, as a Pipe delivers them."""
        ...

    def split(self, stream: ByteStream, key: str | None, cursor: Cursor | None = None, /) -> Iterator[Sample]:
        """The samples of one object (or of objects joined), in order, in flat memory.

        `key` is the object's, if known. `cursor` says where to begin, and is told before each sample where the next one
        begins (see `cursor.py`); the stream stands at its beginning in any case. Raises CorruptError, naming the offset,
        where the data is damaged or cut.
        """
        ...


# A content type that is not here, or none, means whole objects.
FORMATS: Mapping[str, Format] = {
    "application/x-tar": tar,
    "application/x-recordio": recordio,
    "application/x-recordio-protobuf": recordio_protobuf,
    "application/x-tfrecord": tfrecord,
    "application/zip": zip_members,
    "application/x-parquet": parquet.ROWS,
    "application/jsonlines": lines,
    "text/csv": lines,
    "text/plain": lines,
}

# For the `format` argument of open_channel: where a channel has no content type, or another than its data, or where more is
# known of its records than that they are records.
SHORT_NAMES: Mapping[str, Format] = {
    "objects": objects,
    "tar": tar,
    "recordio": recordio,
    "image-recordio": image_recordio,
    "recordio-protobuf": recordio_protobuf,
    "tfrecord": tfrecord,
    "tfrecord-example": example,
    "zip": zip_members,
    "parquet": parquet.ROWS,
    "lines": lines,
    "jsonl": json_lines,
    "csv": csv_rows.ROWS,
    "augmented": augmented.RECORDS,
}


def format_of(content_type: str | None) -> Format:
    """The format of a content type or of a short name (`tar`), with the parameters behind it that it knows.

    Raises ChannelError for a word that is neither (a content type has a slash), or for parameters as `options.chosen` does.
    """
    if content_type is None or not content_type.strip():
        return objects
    name = content_type.partition(";")[0].strip().lower()
    if "/" in name:
        return options.chosen(FORMATS.get(name, objects), content_type)
    if name not in SHORT_NAMES:
        near = difflib.get_close_matches(name, SHORT_NAMES, 1)
        raise ChannelError(
            f"format {content_type!r} is neither a content type nor one of {', '.join(SHORT_NAMES)}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    return options.chosen(SHORT_NAMES[name], content_type)


def name_of(form: Format) -> str:
    """A format's short name, with what was chosen: what messages and states call it, and `format_of` finds it by."""
    return next((name for name, known in SHORT_NAMES.items() if known is form), None) or str(form)
