"""Image RecordIO: RecordIO whose records are an image and its label, as MXNet's im2rec and pack() write them.

A record begins with a header of 24 bytes (IRHeader: uint32 flag, float32 label, uint64 id, uint64 id2). If the flag is not 0, it is
the number of float32 labels that follow, and the header's own label has no meaning. The rest is the image. A sample is

    {"data": b"<the image>", "label": 3.0 or a float32 array, "id": 17, "id2": 0}

The content type `application/x-recordio` yields the records as they are: ask for `format="image-recordio"`.

Source: MXNet's `recordio.py` and `src/io/image_recordio.h`.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

from sagemaker_channels.formats import recordio
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.writing import content, refuse_others, write_each
from sagemaker_channels.sample import DATA, Sample

_HEADER = struct.Struct("<IfQQ")
_FIELDS = (DATA, "label", "id", "id2")


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


def _encode(sample: Sample) -> list[bytes]:
    """Return a record of a sample with the fields that `decode` returns, all but `data` optional."""
    data = content(sample, DATA)
    refuse_others(sample, _FIELDS)
    fields = {name: sample[name] for name in _FIELDS[1:] if name in sample}
    try:
        return recordio.encode(encode(data, **fields))
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise ValueError(f"its label and ids {fields} cannot be written: {error}") from error


def _fitted(sample: Sample) -> Sample:
    import numpy as np

    fields = {"label": 0.0, "id": 0, "id2": 0, **sample}
    label = np.asarray(fields["label"], "<f4")
    return {**fields, "label": label if label.ndim else float(label)}


FORMAT = Format(
    name="image-recordio",
    sample="`data`, `label`, `id` and `id2` of MXNet's image records in RecordIO",
    write=partial(write_each, _encode),
    ending=".rec",
    holds="data",
    fit=_fitted,
    framing=recordio.FORMAT,
    decode=decode,
    after_damage="the next record; after a damaged header, the next object",
)
