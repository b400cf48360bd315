"""SageMaker's `aialgs.data.Record`, parsed without the protobuf package.

A Record maps names to values, which are tensors (float32, float64, int32; dense or sparse) or bytes, once as features and
once as labels; SageMaker's writers call a single one `values`. A sample has the same shape:

    {"features": {"values": array}, "label": {"values": array}, "uid": "...", "metadata": "...", "configuration": "..."}

`features` and `label` are always present, perhaps empty; the texts only if the record has them. Dense tensors are arrays, in their
shape if one is given; sparse ones are `Sparse`; bytes are `Blob`. Writing is in `recordio_protobuf.py`.

Source: AWS, "Common Data Formats for Training", and the record.proto that it shows.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from sagemaker_channels.errors import CorruptError, corrupt
from sagemaker_channels.formats.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    content,
    fields,
    joined,
    numbers,
    varints,
)
from sagemaker_channels.sample import Sample

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FEATURES, LABEL = "features", "label"
_MAPS = {1: FEATURES, 2: LABEL}
_TEXTS = {3: "uid", 4: "metadata", 5: "configuration"}
_TENSORS = {2: ("<f4", FIXED32), 3: ("<f8", FIXED64), 7: ("<i4", VARINT)}  # Value's fields; 9 is Bytes
_BYTES_FIELD = 9
_FIRST, _SECOND, _THIRD = (number << 3 | BYTES for number in (1, 2, 3))
_MOST = 1 << 62  # numbers in a tensor
_PLAIN_TENSORS = {number << 3 | BYTES: dtype for number, (dtype, _) in _TENSORS.items()}  # by their tags


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


# (FEATURES or LABEL, name) -> Tensor or Blob; (name of a text, "") -> str
Parsed = dict[tuple[str, str], Any]


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
    for tag, start, stop in fields(record, 0, len(record)):
        number = tag >> 3
        if tag & 7 != BYTES:
            raise ValueError(f"its field {number} is of wire type {tag & 7}")
        if number in _MAPS:
            name, value = _plain_entry(record, start, stop) or _entry(record, start, stop)
            parsed[_MAPS[number], name] = value
        elif number in _TEXTS:
            parsed[_TEXTS[number], ""] = record[start:stop].decode()
        else:  # the schema has not changed in years, and ignoring a damaged tag would lose data silently
            raise ValueError(f"its field {number}, which a Record does not have")
    return parsed


def to_value(tensor: Tensor) -> npt.NDArray[Any] | Sparse:
    """Return a tensor's numbers. Raises ValueError if keys, values and shape do not fit together."""
    values = numbers(tensor.values, tensor.dtype)
    if tensor.sparse:
        keys = varints(tensor.keys)
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


def corrupt_record(key: str | None, offset: int, reason: object) -> CorruptError:
    """Return the error of the record at a byte of an object."""
    return corrupt(key, offset, f"not a record of recordio-protobuf, or damaged: {reason}")


def _plain_entry(data: bytes, start: int, stop: int) -> tuple[str, Tensor] | None:
    """Do the same as `_entry` in a third of the time, for a tensor as nearly all writers write it; None for any other.

    That is: name before value; numbers, keys and shape each at most one piece, packed and in this order.
    """
    try:
        start, place = content(data, start, _FIRST)
        name = data[start:place].decode()
        value, value_end = content(data, place, _SECOND)
        dtype = _PLAIN_TENSORS[data[value]]
        place, end = content(data, value, data[value])
        if not end == value_end == stop:
            return None
        begins, pieces = [], []
        for tag in (_FIRST, _SECOND, _THIRD):
            begin = place
            if place < stop and data[place] == tag:
                begin, place = content(data, place, tag)
            begins.append(begin)
            pieces.append(data[begin:place])
        if place != stop:
            return None
        return name, Tensor(dtype, pieces[0], pieces[1], _shape(pieces[2]), begins[0])
    except (IndexError, KeyError, ValueError):
        return None  # `_entry` finds what is wrong, if anything is


@lru_cache(256)
def _shape(packed: bytes) -> tuple[int, ...]:
    """Return a tensor's shape, nearly always that of the record before. Raises ValueError for an impossible one."""
    shape = tuple(varints(packed).tolist()) if packed else ()
    if any(extent >= _MOST for extent in shape) or prod(shape) >= _MOST:
        raise ValueError(f"a tensor of the impossible shape {shape}")
    return shape


def _entry(data: bytes, start: int, stop: int) -> tuple[str, Tensor | Blob | None]:
    """Return an entry of a map: its key and its value, None for a Value without one."""
    name = ""
    number, pieces = 0, list[tuple[int, int]]()
    for tag, place, end in fields(data, start, stop):
        if tag == 1 << 3 | BYTES:
            name = data[place:end].decode()
        elif tag != 2 << 3 | BYTES:
            raise ValueError(f"its entry has the unknown field {tag >> 3}")
        else:
            for kind, begin, last in fields(data, place, end):
                if kind & 7 != BYTES or (kind >> 3 not in _TENSORS and kind >> 3 != _BYTES_FIELD):
                    raise ValueError(f"value {name!r} is of the unknown kind {kind >> 3}")
                if kind >> 3 != number:  # of several kinds, the last one counts
                    number, pieces = kind >> 3, []
                pieces.append((begin, last))
    regions = [field for begin, last in pieces for field in fields(data, begin, last)]
    if number == 0:
        return name, None
    if number == _BYTES_FIELD:
        return name, _blob(data, regions)
    dtype, wire = _TENSORS[number]
    parts = [[region for region in regions if region[0] >> 3 == field] for field in (1, 2, 3)]
    if sum(map(len, parts)) < len(regions):
        raise ValueError(f"tensor {name!r} has an unknown field")
    place = parts[0][0][1] if len(parts[0]) == 1 else -1
    shape = _shape(joined(data, parts[2], VARINT)) if parts[2] else ()
    return name, Tensor(dtype, joined(data, parts[0], wire), joined(data, parts[1], VARINT), shape, place)


def _blob(data: bytes, regions: list[tuple[int, int, int]]) -> Blob:
    values = [data[start:stop] for tag, start, stop in regions if tag == 1 << 3 | BYTES]
    names = [data[start:stop].decode() for tag, start, stop in regions if tag == 2 << 3 | BYTES]
    if len(values) + len(names) < len(regions):
        raise ValueError("bytes with an unknown field")
    return Blob(values, names[-1] if names else "")
