"""How a broker splits a Pipe: into samples, or into records if decoding them takes long (tf.train.Example, protocol buffers).

Such a format is another format that finds the records, and a function of a record: the broker finds them, and all workers decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from entrypoints.errors import CorruptError
from entrypoints.records import Format
from entrypoints.records.cursor import Cursor
from entrypoints.records.recordio import recordio
from entrypoints.sample import DATA, ByteStream, Sample

_OFFSET = "__offset__"  # of a record in the stream, for errors


def split_stream(stream: ByteStream, form: Format, wrapped: bool) -> Iterator[Sample]:
    """Yield the samples of a stream, or their records; `wrapped`: each object is in a RecordIO record."""
    if wrapped:
        yield from recordio.unwrapped(stream, form.split)
        return
    if form.framing is None:
        yield from form.split(stream, None)
        return
    cursor = Cursor()
    offset = 0
    for sample in form.framing.split(stream, None, cursor):
        sample[_OFFSET] = offset
        offset = abs(cursor.position)
        yield sample


def decoder_of(form: Format) -> Callable[[Sample], Sample] | None:
    """Return the function that makes a sample of a record; None if the broker sends samples."""
    decode = form.decode
    if decode is None:
        return None

    def decoded(record: Sample) -> Sample:
        try:
            return decode(record[DATA])
        except ValueError as error:
            raise CorruptError(f"byte {record[_OFFSET]}: this record cannot be decoded: {error}") from error

    return decoded
