"""How a broker splits a Pipe: into the channel's samples, or into records if making samples of them takes long.

Formats that decode a record (a tf.train.Example, numbers in protocol buffers) are another format that finds the record, and a
function of that record alone. The broker finds records, and all workers decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from entrypoints.errors import CorruptError
from entrypoints.records import Format
from entrypoints.records.cursor import Cursor
from entrypoints.records.recordio import image_recordio, recordio, recordio_protobuf
from entrypoints.records.tfrecord import example, tfrecord
from entrypoints.sample import DATA, ByteStream, Sample

_OFFSET = "__offset__"  # of a record in the stream, for errors

# Formats whose records the readers decode, with the format that finds the records.
_RECORDS: tuple[tuple[Any, Format], ...] = (
    (example, tfrecord),
    (image_recordio, recordio),
    (recordio_protobuf, recordio),
)


def split_stream(stream: ByteStream, form: Format, wrapped: bool) -> Iterator[Sample]:
    """Yield the samples or records of a stream, one for each sample.

    Args:
        stream: The bytes of an epoch.
        form: The channel's format.
        wrapped: Whether each object is wrapped in a RecordIO record.
    """
    if wrapped:
        yield from recordio.unwrapped(stream, form.split)
        return
    records = _records_of(form)
    if records is None:
        yield from form.split(stream, None)
        return
    cursor = Cursor()
    offset = 0
    for sample in records.split(stream, None, cursor):
        sample[_OFFSET] = offset
        offset = abs(cursor.position)
        yield sample


def decoder_of(form: Format) -> Callable[[Sample], Sample] | None:
    """Return the function that makes a sample of a record; None if the broker sends samples."""
    if _records_of(form) is None:
        return None
    decode: Callable[[bytes], Sample] = getattr(form, "decode")  # noqa: B009 - only formats of the table have it

    def decoded(record: Sample) -> Sample:
        try:
            return decode(record[DATA])
        except ValueError as error:
            raise CorruptError(f"byte {record[_OFFSET]}: this record cannot be decoded: {error}") from error

    return decoded


def _records_of(form: Format) -> Format | None:
    return next((records for decoded, records in _RECORDS if decoded is form), None)
