"""Image RecordIO: RecordIO whose records are an image and its label, as MXNet's im2rec and pack() write them.

A record begins with a header of 24 bytes (IRHeader: uint32 flag, float32 label, uint64 id, uint64 id2). If the flag is not 0, it is
the number of float32 labels that follow, and the header's own label has no meaning. The rest is the image. A sample is

    {"data": b"<the image>", "label": 3.0 or a float32 array, "id": 17, "id2": 0}

The content type `application/x-recordio` yields the records as they are: ask for `format="image-recordio"`.

Source: MXNet's `recordio.py` and `src/io/image_recordio.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from entrypoints.records import gunzip
from entrypoints.records.cursor import Cursor
from entrypoints.records.format import Format, decoded
from entrypoints.records.recordio import recordio
from entrypoints.records.refusing import content, refusal, refuse_others
from entrypoints.sample import DATA, ByteStream, Sample

_HEADER = struct.Struct("<IfQQ")
_FIELDS = (DATA, "label", "id", "id2")


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """Yield the images of the records of a stream, with their labels and ids. Positions are RecordIO's."""
    return gunzip.split_either(_split, stream, key, cursor)


def _split(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    records = recordio.payloads(stream, key, cursor)
    return decoded(records, decode, key, cursor, "not an image record, or damaged")


def decode(record: bytes) -> Sample:
    """Return a record's fields `data`, `label`, `id` and `id2`. Raises ValueError if it is too short for its header."""
    if len(record) < _HEADER.size:
        raise ValueError(f"the header takes {_HEADER.size} bytes, and the record has {len(record)}")
    flag, label, number, second = _HEADER.unpack_from(record)
    start = _HEADER.size + 4 * flag
    if len(record) < start:
        raise ValueError(f"its {flag} labels end at byte {start}, and the record has {len(record)}")
    if flag:
        import numpy as np

        label = np.frombuffer(record, "<f4", flag, _HEADER.size).copy()  # a copy is writable, as torch wants it
    return {DATA: record[start:], "label": label, "id": number, "id2": second}


def encode(data: bytes, label: Any = 0.0, id: int = 0, id2: int = 0) -> bytes:
    """Return a record of an image and its label: one number, or several in a list or an array."""
    if isinstance(label, (int, float)) or getattr(label, "ndim", 1) == 0:  # numpy's scalars have no dimension
        return _HEADER.pack(0, label, id, id2) + data
    labels = [float(value) for value in label]
    if not labels:
        raise ValueError("an image record needs a label")
    return _HEADER.pack(len(labels), 0.0, id, id2) + struct.pack(f"<{len(labels)}f", *labels) + data


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples with the fields that `split` yields, all but `data` optional, and return their number.

    Raises:
        SampleError: A sample has other fields or values.
    """
    count = 0
    for count, sample in enumerate(samples, 1):
        data = content(count - 1, sample, DATA)
        refuse_others(count - 1, sample, _FIELDS)
        fields = {name: sample[name] for name in _FIELDS[1:] if name in sample}
        try:
            recordio.write(stream, [encode(data, **fields)])
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise refusal(count - 1, sample, f"its label and ids {fields} cannot be written: {error}") from error
    return count


FORMAT = Format(
    name="image-recordio",
    sample="`data`, `label`, `id` and `id2` of MXNet's image records in RecordIO",
    split=split,
    write=write,
    ending=".rec",
    framing=recordio.FORMAT,
    decode=decode,
)
