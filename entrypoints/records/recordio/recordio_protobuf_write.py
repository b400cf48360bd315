"""The writer of RecordIO-protobuf, for SageMaker's built-in algorithms and our reader.

As with SageMaker's SDK, dense records have no shape, and sparse ones have the number of columns. Unlike the SDK's writer,
this one splits a record at a magic word in its data, as MXNet's format requires.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from entrypoints.records.protobuf import arrays, encode, encode_varints
from entrypoints.records.recordio import recordio
from entrypoints.records.recordio.protobuf_record import FEATURES, LABEL, Blob, Sparse
from entrypoints.records.refusing import refusal, refuse_others
from entrypoints.sample import Sample

if TYPE_CHECKING:
    import numpy.typing as npt

_FIELDS = {"f4": 2, "f8": 3, "i4": 7, "i8": 7, "i2": 7, "i1": 7, "u1": 7, "u2": 7, "b1": 7, "f2": 2}  # of Value
_TEXTS = {"uid": 3, "metadata": 4, "configuration": 5}
_INT32 = 1 << 31


def write_dense(stream: BinaryIO, rows: npt.NDArray[Any], labels: npt.NDArray[Any] | None = None) -> int:
    """Write the rows of a matrix, each a record of features `values`, with their labels; return their number.

    Floats keep their width (float16 becomes float32); integers become int32. Raises ValueError for numbers that do not fit.
    """
    return write(stream, (_sample(row, labels, number) for number, row in enumerate(_matrix(rows, labels))))


def write_sparse(stream: BinaryIO, rows: Any, labels: npt.NDArray[Any] | None = None) -> int:
    """Write the rows of a scipy sparse matrix in the same way, each a sparse tensor; return their number."""
    matrix = _matrix(rows.tocsr(), labels)
    starts = matrix.indptr
    tensors = (
        Sparse(matrix.data[start:stop], matrix.indices[start:stop], (matrix.shape[1],))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    )
    return write(stream, (_sample(tensor, labels, number) for number, tensor in enumerate(tensors)))


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write samples of the shape that `recordio_protobuf.split` yields, and return their number.

    Raises:
        SampleError: A sample has other fields or values.
    """
    return recordio.write(stream, (_encoded(number, sample) for number, sample in enumerate(samples)))


def _encoded(number: int, sample: Sample) -> bytes:
    refuse_others(number, sample, (FEATURES, LABEL, *_TEXTS))
    try:
        return encode_record(sample)
    except ValueError as error:
        raise refusal(number, sample, error) from error


def encode_record(sample: Mapping[str, Any]) -> bytes:
    """Encode a sample's features, labels and texts as a Record. Arrays of several dimensions keep their shape.

    Raises:
        ValueError: A Record cannot hold a value; the message names the field.
    """
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


def _matrix(rows: Any, labels: npt.NDArray[Any] | None) -> Any:
    if len(rows.shape) != 2 or (labels is not None and labels.shape != rows.shape[:1]):
        shape = None if labels is None else labels.shape
        raise ValueError(f"expected a matrix and as many labels as rows, got shapes {rows.shape} and {shape}")
    return rows


def _sample(features: Any, labels: npt.NDArray[Any] | None, number: int) -> Sample:
    sample: Sample = {FEATURES: {"values": features}}
    if labels is not None:
        sample[LABEL] = {"values": labels[number : number + 1]}
    return sample


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
