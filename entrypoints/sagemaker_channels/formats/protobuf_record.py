"""SageMaker's `aialgs.data.Record`, parsed and written without the protobuf package.

A Record maps names to values, which are tensors (float32, float64, int32; dense or sparse) or bytes, once as features and
once as labels; SageMaker's writers call a single one `values`. A sample has the same shape:

    {"features": {"values": array}, "label": {"values": array}, "uid": "...", "metadata": "...", "configuration": "..."}

`features` and `label` are always present, perhaps empty; the texts only if the record has them. Dense tensors are arrays, in their
shape if one is given; sparse ones are `Sparse`; bytes are `Blob`. As SageMaker's SDK does, `encode_record` leaves out the shape of
arrays of one dimension.

Source: AWS, "Common Data Formats for Training", and the record.proto that it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from sagemaker_channels.formats import protobuf
from sagemaker_channels.formats.writing import refuse_others
from sagemaker_channels.sample import Sample

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FEATURES, LABEL = "features", "label"
_MAPS = {1: FEATURES, 2: LABEL}  # by the numbers of a Record's fields
_TEXTS = {3: "uid", 4: "metadata", 5: "configuration"}
# By a Value's fields.
_TENSORS = {2: ("<f4", protobuf.FIXED32), 3: ("<f8", protobuf.FIXED64), 7: ("<i4", protobuf.VARINT)}
_BYTES = 9
_THIRD = 3 << 3 | protobuf.BYTES
_MOST = 1 << 62  # numbers in a tensor
# Fields of a Value, to write.
_NUMBERS = {"f4": 2, "f2": 2, "f8": 3, **dict.fromkeys(("i4", "i8", "i2", "i1", "u1", "u2", "b1"), 7)}
_INT32 = 1 << 31


class Sparse(NamedTuple):
    """A sparse tensor: `values[i]` is at index `keys[i]` of the flattened tensor of `shape`; all other values are 0."""

    values: npt.NDArray[Any]
    keys: npt.NDArray[np.uint64]
    shape: tuple[int, ...]


class Blob(NamedTuple):
    """Bytes in a record, such as an image; SageMaker's schema allows several. `content_type` may be empty."""

    values: list[bytes]
    content_type: str


class Tensor(NamedTuple):
    """A tensor as it is written: its numbers and keys packed. `place` is the offset of the numbers in the record, -1 if split."""

    dtype: str
    values: bytes
    keys: bytes
    shape: tuple[int, ...]
    place: int

    @property
    def sparse(self) -> bool:
        """Whether the tensor is sparse. One of zeros only has no keys, but a shape that its values do not fill."""
        return bool(self.keys) or (not self.values and prod(self.shape) > 0 and bool(self.shape))


Path = tuple[str, str]  # (FEATURES or LABEL, name); (name of a text, "")
Parsed = dict[Path, Any]  # to Tensor, Blob or str


def decode(record: bytes) -> Sample:
    """Return a record's fields as a sample; see the module. Raises ValueError if it is not a Record."""
    sample: Sample = {FEATURES: {}, LABEL: {}}
    for (kind, name), value in parse(record).items():
        if kind in sample and kind not in _TEXTS.values():
            sample[kind][name] = to_value(value) if isinstance(value, Tensor) else value
        else:
            sample[kind] = value
    return sample


def parse(record: bytes) -> Parsed:
    """Return a record's values as they are written. Raises ValueError if it is not a Record."""
    parsed: Parsed = {}
    for tag, start, stop in protobuf.fields(record, 0, len(record)):
        number = tag >> 3
        if tag & 7 != protobuf.BYTES:
            raise ValueError(f"its field {number} is of wire type {tag & 7}")
        if number in _MAPS:
            name, kind, regions = protobuf.entry(record, start, stop)
            parsed[_MAPS[number], name] = _value(record, name, kind >> 3, regions)
        elif number in _TEXTS:
            parsed[_TEXTS[number], ""] = record[start:stop].decode()
        else:  # the schema has not changed in years, and ignoring a damaged tag would lose data silently
            raise ValueError(f"its field {number}, which a Record does not have")
    return parsed


def _value(data: bytes, name: str, kind: int, regions: list[tuple[int, int, int]]) -> Tensor | Blob | None:
    """Return the Value of this kind with the fields in these regions; None if it is empty."""
    if kind in _TENSORS:
        packed, least = [b"", b"", b""], protobuf.FIRST
        for tag, start, stop in regions:
            if tag < least or tag not in (protobuf.FIRST, protobuf.SECOND, _THIRD):
                break
            packed[(tag >> 3) - 1], least = data[start:stop], tag + 1
        else:  # nearly always: numbers, keys and shape, each in one piece at most
            place = regions[0][1] if regions else -1
            return Tensor(_TENSORS[kind][0], packed[0], packed[1], _shape(packed[2]), place)
    parts: dict[int, list[tuple[int, int, int]]] = {1: [], 2: [], 3: []}
    for region in regions:
        if region[0] >> 3 not in parts:
            raise ValueError(f"value {name!r} has the unknown field {region[0] >> 3}")
        parts[region[0] >> 3].append(region)
    if kind == 0:
        return None
    if kind == _BYTES and not parts[3]:
        values, types = ([data[start:stop] for _, start, stop in parts[number]] for number in (1, 2))
        return Blob(values, types[-1].decode() if types else "")
    if kind not in _TENSORS:
        raise ValueError(f"value {name!r} is of the unknown kind {kind}")
    dtype, wire = _TENSORS[kind]
    place = parts[1][0][1] if len(parts[1]) == 1 else -1
    shape = _shape(protobuf.joined(data, parts[3], protobuf.VARINT))
    return Tensor(
        dtype, protobuf.joined(data, parts[1], wire), protobuf.joined(data, parts[2], protobuf.VARINT), shape, place
    )


@lru_cache(256)
def _shape(packed: bytes) -> tuple[int, ...]:
    """Return a tensor's shape, nearly always that of the record before. Raises ValueError for an impossible one."""
    shape = tuple(protobuf.varints(packed).tolist()) if packed else ()
    if any(extent >= _MOST for extent in shape) or prod(shape) >= _MOST:
        raise ValueError(f"a tensor of the impossible shape {shape}")
    return shape


def to_value(tensor: Tensor) -> npt.NDArray[Any] | Sparse:
    """Return a tensor's numbers. Raises ValueError if keys, values and shape do not fit together."""
    values = protobuf.numbers(tensor.values, tensor.dtype)
    if tensor.sparse:
        keys = protobuf.varints(tensor.keys)
        if len(keys) != len(values):
            raise ValueError(f"a sparse tensor of {len(values)} values has {len(keys)} keys")
        check_keys(keys, tensor.shape)
        return Sparse(values, keys, tensor.shape)
    if tensor.shape and prod(tensor.shape) != len(values):
        raise ValueError(f"a tensor of shape {tensor.shape} has {len(values)} values")
    return values.reshape(tensor.shape) if tensor.shape else values


def check_keys(keys: npt.NDArray[np.uint64], shape: tuple[int, ...]) -> None:
    """Raise ValueError if a key of a sparse tensor is outside its shape, or beyond any tensor if it has no shape."""
    if len(keys) and int(keys.max()) >= (prod(shape) if shape else _MOST):
        raise ValueError(f"a sparse tensor of shape {shape} has a value at key {int(keys.max())}")


def encode_record(sample: Sample) -> bytes:
    """Encode a sample's features, labels and texts as a Record. Arrays of several dimensions keep their shape.

    Floats keep their width (float16 becomes float32); integers become int32. Raises ValueError for what a Record cannot hold.
    """
    refuse_others(sample, (FEATURES, LABEL, *_TEXTS.values()))
    fields = []
    for number, kind in _MAPS.items():
        values = sample.get(kind, {})
        if not isinstance(values, Mapping):
            raise ValueError(f"field {kind!r}: expected a dict of arrays, got {type(values).__name__}")
        for name, value in values.items():
            try:
                fields.append(
                    protobuf.encode(
                        number, protobuf.encode(1, name.encode()) + protobuf.encode(2, _encode_value(value))
                    )
                )
            except (ValueError, TypeError) as error:
                raise ValueError(f"field {kind!r}, {name!r}: {error}") from error
    for number, name in _TEXTS.items():
        if name in sample:
            if not isinstance(sample[name], str):
                raise ValueError(f"field {name!r}: expected a text, got {type(sample[name]).__name__}")
            fields.append(protobuf.encode(number, sample[name].encode()))
    return b"".join(fields)


def _encode_value(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Blob):
        content = b"".join(protobuf.encode(1, data) for data in value.values)
        return protobuf.encode(
            _BYTES, content + (protobuf.encode(2, value.content_type.encode()) if value.content_type else b"")
        )
    if not hasattr(value, "shape"):
        raise ValueError(f"expected an array, Sparse or Blob, got {type(value).__name__}")
    np = protobuf.arrays()
    shape = value.shape
    array = np.asarray(value.values if isinstance(value, Sparse) else value)
    field = _NUMBERS.get(array.dtype.str[1:])
    if field is None or (field == 7 and array.size and not -_INT32 <= int(array.min()) <= int(array.max()) < _INT32):
        raise ValueError(f"expected float32, float64 or int32, got {array.dtype}, or numbers too large for int32")
    content = (
        protobuf.encode_varints(array.reshape(-1))
        if field == 7
        else array.astype("<f8" if field == 3 else "<f4").tobytes()
    )
    tensor = protobuf.encode(1, content) if content else b""
    if isinstance(value, Sparse):
        tensor += protobuf.encode(2, protobuf.encode_varints(value.keys)) if len(value.keys) else b""
    if isinstance(value, Sparse) or len(shape) != 1:
        tensor += protobuf.encode(3, protobuf.encode_varints(np.array(shape, np.int64))) if shape else b""
    return protobuf.encode(field, tensor)
