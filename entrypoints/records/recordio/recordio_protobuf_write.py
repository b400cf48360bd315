"""Writing RecordIO-protobuf, as SageMaker's SDK does it: what its built-in algorithms and our reader take.

Dense records carry no shape, as the SDK's; sparse ones carry the number of columns. Unlike the SDK's writer, which leaves a
magic word that happens to stand in the data, records are split there as MXNet's format has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from entrypoints.records.protobuf import arrays, encode, encode_varints
from entrypoints.records.recordio import recordio
from entrypoints.records.recordio.recordio_protobuf import FEATURES, LABEL, Blob, Sparse
from entrypoints.records.refusing import refusal, refuse_others
from entrypoints.sample import Sample

if TYPE_CHECKING:
    import numpy.typing as npt

_FIELDS = {"f4": 2, "f8": 3, "i4": 7, "i8": 7, "i2": 7, "i1": 7, "u1": 7, "u2": 7, "b1": 7, "f2": 2}  # of Value
_TEXTS = {"uid": 3, "metadata": 4, "configuration": 5}
_INT32 = 1 << 31


def write_dense(stream: BinaryIO, rows: npt.NDArray[Any], labels: npt.NDArray[Any] | None = None) -> int:
    """Writes the rows of a matrix, each a record of features `values`, with their labels; how many.

    Floats keep their width (float16 becomes float32); integers become int32. Raises ValueError for what does not fit.
    """
    return write(stream, (_sample(row, labels, number) for number, row in enumerate(_matrix(rows, labels))))


def write_sparse(stream: BinaryIO, rows: Any, labels: npt.NDArray[Any] | None = None) -> int:
    """Writes the rows of a scipy sparse matrix likewise, each a sparse tensor; how many."""
    matrix = _matrix(rows.tocsr(), labels)
    starts = matrix.indptr
    tensors = (
        Sparse(matrix.data[start:stop], matrix.indices[start:stop], (matrix.shape[1],))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    )
    return write(stream, (_sample(tensor, labels, number) for number, tensor in enumerate(tensors)))


def write(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Writes samples of the shape that `recordio_protobuf.split` gives; how many.

    Raises SampleError, a ValueError, for other values and fields.
    """
    return recordio.write(stream, (_encoded(number, sample) for number, sample in enumerate(samples)))


def _encoded(number: int, sample: Sample) -> bytes:
    refuse_others(number, sample, (FEATURES, LABEL, *_TEXTS))
    try:
        return encode_record(sample)
    except ValueError as error:
        raise refusal(number, sample, error) from error


def encode_record(sample: Mapping[str, Any]) -> bytes:
    """A Record of a sample's features, labels and texts. Arrays of more than one dimension carry their shape.

    Raises ValueError, naming the field, for what a Record cannot hold.
    """
    fields = []
    for number, kind in ((1, FEATURES), (2, LABEL)):
        values = sample.get(kind, {})
        if not isinstance(values, Mapping):
            raise ValueError(f"field {kind!r} is {type(values).__name__}, and a dict of arrays is expected")
        for name, value in values.items():
            try:
                fields.append(encode(number, encode(1, name.encode()) + encode(2, _encode_value(value))))
            except (ValueError, TypeError) as error:
                raise ValueError(f"field {kind!r}, {name!r}: {error}") from error
    for name, number in _TEXTS.items():
        if name in sample:
            if not isinstance(sample[name], str):
                raise ValueError(f"field {name!r} is {type(sample[name]).__name__}, and a text is expected")
            fields.append(encode(number, sample[name].encode()))
    return b"".join(fields)


def _matrix(rows: Any, labels: npt.NDArray[Any] | None) -> Any:
    if len(rows.shape) != 2 or (labels is not None and labels.shape != rows.shape[:1]):
        shape = None if labels is None else labels.shape
        raise ValueError(f"a matrix and as many labels are needed, not shapes {rows.shape} and {shape}")
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
        raise ValueError(f"an array, Sparse or Blob is expected, not {type(value).__name__}")
    np = arrays()
    shape = value.shape
    array = np.asarray(value.values if isinstance(value, Sparse) else value)
    field = _FIELDS.get(array.dtype.str[1:])
    if field is None or (field == 7 and array.size and not -_INT32 <= int(array.min()) <= int(array.max()) < _INT32):
        raise ValueError(f"a record holds float32, float64 and int32; not {array.dtype}, or not numbers as big as here")
    content = (
        encode_varints(array.reshape(-1)) if field == 7 else array.astype("<f8" if field == 3 else "<f4").tobytes()
    )
    tensor = encode(1, content) if content else b""
    if isinstance(value, Sparse):
        tensor += encode(2, encode_varints(value.keys)) if len(value.keys) else b""
    if isinstance(value, Sparse) or len(shape) != 1:
        tensor += encode(3, encode_varints(np.array(shape, np.int64))) if shape else b""
    return encode(field, tensor)
