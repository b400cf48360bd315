"""RecordIO-protobuf, SageMaker's own format: each RecordIO record is an `aialgs.data.Record` (see `protobuf_record.py`).

    format="recordio-protobuf"                a sample for each record
    format="recordio-protobuf; batch=1000"    a sample for each 1000 records of an object (of a Pipe, of its stream), stacked: far
                                              faster; see `recordio_protobuf_batches.py`

As SageMaker's SDK does, the writer leaves out the shape of arrays of one dimension. Unlike the SDK's, it splits a record at a magic
word in its data, as MXNet's format requires.

Source: AWS, "Common Data Formats for Training".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.gunzip import unzipped
from sagemaker_channels.formats.protobuf import arrays, encode, encode_varints
from sagemaker_channels.formats.recordio import recordio
from sagemaker_channels.formats.recordio.protobuf_record import FEATURES, LABEL, Blob, Sparse, decode
from sagemaker_channels.formats.recordio.recordio_protobuf_batches import batches
from sagemaker_channels.formats.writing import refuse_others, write_each
from sagemaker_channels.sample import Sample

_FIELDS = {"f4": 2, "f8": 3, "i4": 7, "i8": 7, "i2": 7, "i1": 7, "u1": 7, "u2": 7, "b1": 7, "f2": 2}  # of Value
_TEXTS = {"uid": 3, "metadata": 4, "configuration": 5}
_INT32 = 1 << 31


def encode_record(sample: Sample) -> bytes:
    """Encode a sample's features, labels and texts as a Record. Arrays of several dimensions keep their shape.

    Floats keep their width (float16 becomes float32); integers become int32. Raises ValueError for what a Record cannot hold.
    """
    refuse_others(sample, (FEATURES, LABEL, *_TEXTS))
    fields = []
    for number, kind in ((1, FEATURES), (2, LABEL)):
        values = sample.get(kind, {})
        if not isinstance(values, Mapping):
            raise ValueError(f"field {kind!r}: expected a dict of arrays, got {type(values).__name__}")
        for name, value in values.items():
            try:
                fields.append(encode(number, encode(1, name.encode()) + encode(2, _encode_value(value))))
            except (ValueError, TypeError) as error:
                raise ValueError(f"field {kind!r}, {name!r}: {error}") from error
    for name, number in _TEXTS.items():
        if name in sample:
            if not isinstance(sample[name], str):
                raise ValueError(f"field {name!r}: expected a text, got {type(sample[name]).__name__}")
            fields.append(encode(number, sample[name].encode()))
    return b"".join(fields)


def _encode_value(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Blob):
        content = b"".join(encode(1, data) for data in value.values)
        return encode(9, content + (encode(2, value.content_type.encode()) if value.content_type else b""))
    if not hasattr(value, "shape"):
        raise ValueError(f"expected an array, Sparse or Blob, got {type(value).__name__}")
    np = arrays()
    shape = value.shape
    array = np.asarray(value.values if isinstance(value, Sparse) else value)
    field = _FIELDS.get(array.dtype.str[1:])
    if field is None or (field == 7 and array.size and not -_INT32 <= int(array.min()) <= int(array.max()) < _INT32):
        raise ValueError(f"expected float32, float64 or int32, got {array.dtype}, or numbers too large for int32")
    content = (
        encode_varints(array.reshape(-1)) if field == 7 else array.astype("<f8" if field == 3 else "<f4").tobytes()
    )
    tensor = encode(1, content) if content else b""
    if isinstance(value, Sparse):
        tensor += encode(2, encode_varints(value.keys)) if len(value.keys) else b""
    if isinstance(value, Sparse) or len(shape) != 1:
        tensor += encode(3, encode_varints(np.array(shape, np.int64))) if shape else b""
    return encode(field, tensor)


def _with_options(options: Mapping[str, str]) -> Format:
    size = options["batch"]
    if not (size.isascii() and size.isdigit() and int(size)):
        raise ChannelError(f"recordio-protobuf: batch is {size!r}; write how many records a batch has: batch=1000")
    chosen, read = (("batch", str(int(size))),), unzipped(partial(batches, int(size)), recordio.is_own)
    return replace(FORMAT, chosen=chosen, read=read, framing=None, decode=None)  # A sample is a whole batch.


FORMAT = Format(
    name="recordio-protobuf",
    content_types=("application/x-recordio-protobuf",),
    sample="`features` and `label`, each a dict of arrays",
    write=partial(write_each, lambda sample: recordio.encode(encode_record(sample))),
    ending=".pbr",
    framing=recordio.FORMAT,
    decode=decode,
    after_damage="the next record; in batches, after a damaged header, the next object",
    options=("batch",),
    with_options=_with_options,
    example=lambda _, data: {FEATURES: {"x": Blob([data], "")}},
)
