"""RecordIO-protobuf, SageMaker's own format: each RecordIO record is an `aialgs.data.Record` (see `protobuf_record.py`).

    format="recordio-protobuf"                a sample for each record
    format="recordio-protobuf; batch=1000"    a sample for each 1000 records of an object (of a Pipe, of its stream), stacked: far
                                              faster; see `recordio_protobuf_batches.py`

Source: AWS, "Common Data Formats for Training".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from entrypoints.errors import ChannelError
from entrypoints.records import gunzip
from entrypoints.records.cursor import Cursor
from entrypoints.records.format import Format, decoded
from entrypoints.records.recordio import recordio
from entrypoints.records.recordio.protobuf_record import DAMAGED, FEATURES, Blob, decode
from entrypoints.records.recordio.recordio_protobuf_batches import batches
from entrypoints.records.recordio.recordio_protobuf_write import write
from entrypoints.sample import ByteStream, Sample


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """Yield the records of a stream as samples. Positions are RecordIO's."""
    return gunzip.split_either(_split, stream, key, cursor)


def _split(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    return decoded(recordio.payloads(stream, key, cursor), decode, key, cursor, DAMAGED)


def _split_batches(
    size: int, stream: ByteStream, key: str | None = None, cursor: Cursor | None = None
) -> Iterator[Sample]:
    return gunzip.split_either(lambda stream, *rest: batches(stream, size, *rest), stream, key, cursor)


def _with_options(options: Mapping[str, str]) -> Format:
    size = options["batch"]
    if not (size.isascii() and size.isdigit() and int(size)):
        raise ChannelError(f"recordio-protobuf: batch is {size!r}; write how many records a batch has: batch=1000")
    return replace(
        FORMAT,
        chosen=(("batch", str(int(size))),),
        split=partial(_split_batches, int(size)),
        framing=None,  # several readers of a Pipe are sent whole batches
        decode=None,
    )


FORMAT = Format(
    name="recordio-protobuf",
    content_types=("application/x-recordio-protobuf",),
    sample="`features` and `label`, each a dict of arrays",
    split=split,
    write=write,
    ending=".pbr",
    framing=recordio.FORMAT,
    decode=decode,
    options=("batch",),
    with_options=_with_options,
    example=lambda _, data: {FEATURES: {"x": Blob([data], "")}},
)
