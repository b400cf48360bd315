"""RecordIO-protobuf, SageMaker's own format: each RecordIO record is an `aialgs.data.Record`, read without protobuf.

A Record maps names to values, which are tensors (float32, float64, int32; dense or sparse) or bytes, once as features and
once as labels; SageMaker's writers call a single one `values`. A sample has the same shape:

    {"features": {"values": array}, "label": {"values": array}, "uid": "...", "metadata": "...", "configuration": "..."}

`features` and `label` are always there, perhaps empty, the texts where the record has them. Dense tensors are arrays, in their
shape where one is given; sparse ones are `Sparse`; bytes are `Blob`. Writing is in `recordio_protobuf_write.py`. Whole batches
come much faster, as samples of their own:

    format="recordio-protobuf; batch=1000"    the records of an object (of a Pipe, of its stream), 1000 at a time, stacked:
                                              see `recordio_protobuf_batches.py`

Source: AWS, "Common Data Formats for Training", and the record.proto that it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from entrypoints.errors import ChannelError, CorruptError, corrupt
from entrypoints.records import gunzip
from entrypoints.records.cursor import Cursor
from entrypoints.records.protobuf import BYTES, FIXED32, FIXED64, VARINT, fields, joined, numbers, varint, varints
from entrypoints.records.recordio import recordio
from entrypoints.sample import KEY, ByteStream, Sample

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from entrypoints.records.recordio.recordio_protobuf_batches import Batches

BOUNDARIES = True
OPTIONS = ("batch",)

FEATURES, LABEL = "features", "label"
_MAPS = {1: FEATURES, 2: LABEL}
_TEXTS = {3: "uid", 4: "metadata", 5: "configuration"}
_TENSORS = {2: ("<f4", FIXED32), 3: ("<f8", FIXED64), 7: ("<i4", VARINT)}  # Value's fields; 9 is Bytes
_BYTES_FIELD = 9
_FIRST, _SECOND, _THIRD = (number << 3 | BYTES for number in (1, 2, 3))
_MOST = 1 << 62  # numbers in a tensor
_PLAIN_TENSORS = {number << 3 | BYTES: dtype for number, (dtype, _) in _TENSORS.items()}  # by their tags


class Sparse(NamedTuple):
    """A sparse tensor: `values[i]` is at place `keys[i]` of the flattened tensor of `shape`; all else is 0."""

    values: npt.NDArray[Any]
    keys: npt.NDArray[np.uint64]
    shape: tuple[int, ...]


class Blob(NamedTuple):
    """Bytes in a record, such as an image; SageMaker's schema allows several. `content_type` is empty where not given."""

    values: list[bytes]
    content_type: str


class Tensor(NamedTuple):
    """A tensor as it is written: its numbers and keys packed. `place` is where the numbers are in the record, -1 if apart."""

    dtype: str
    values: bytes
    keys: bytes
    shape: tuple[int, ...]
    place: int

    @property
    def sparse(self) -> bool:
        """Whether keys are to be heeded. A sparse tensor of zeros alone has none, but a shape that its values do not fill."""
        return bool(self.keys) or (not self.values and prod(self.shape) > 0 and bool(self.shape))


# (FEATURES or LABEL, name) -> Tensor or Blob; (name of a text, "") -> str
Parsed = dict[tuple[str, str], Any]


def split(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[Sample]:
    """The records of a stream, gzip-compressed or not, as samples. Positions are RecordIO's."""
    return gunzip.split_either(_split, stream, key, cursor)


def _split(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    offset = cursor.start
    for payload in recordio.payloads(stream, key, cursor):
        try:
            sample = decode(payload)
        except ValueError as error:
            raise corrupt_record(key, offset, error) from error
        offset = cursor.position
        if key is not None:
            sample[KEY] = key
        yield sample


def with_options(options: Mapping[str, str]) -> Batches:
    """The format whose samples are batches; raises ChannelError where `batch` is no number of records."""
    from entrypoints.records.recordio.recordio_protobuf_batches import (
        Batches,  # not at the top: it is made of this module
    )

    size = options["batch"]
    if not (size.isascii() and size.isdigit() and int(size)):
        raise ChannelError(f"recordio-protobuf: batch is {size!r}; write how many records a batch has: batch=1000")
    return Batches(int(size))


def decode(record: bytes) -> Sample:
    """A record's fields; see the module. Raises ValueError for what is no Record."""
    sample: Sample = {FEATURES: {}, LABEL: {}}
    for (kind, name), value in parse(record).items():
        if kind in sample and kind not in _TEXTS.values():
            sample[kind][name] = to_value(value) if isinstance(value, Tensor) else value
        else:
            sample[kind] = value
    return sample


def parse(record: bytes) -> Parsed:
    """A record's values as they are written. Raises ValueError for what is no Record."""
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
        else:  # the schema has not changed in years, and a damaged tag would leave out what a model learns from
            raise ValueError(f"its field {number}, which a Record does not have")
    return parsed


def to_value(tensor: Tensor) -> npt.NDArray[Any] | Sparse:
    """A tensor's numbers; raises ValueError where keys, values and shape do not fit together."""
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
    """Raises ValueError where a sparse tensor's value lies outside of it; where it says no shape, outside of all."""
    if len(keys) and int(keys.max()) >= (prod(shape) if shape else _MOST):
        raise ValueError(f"a sparse tensor of shape {shape} has a value at key {int(keys.max())}")


def corrupt_record(key: str | None, offset: int, reason: object) -> CorruptError:
    """The error of a record that begins at a byte of an object."""
    return corrupt(key, offset, f"not a RecordIO-protobuf record, or damaged: {reason}")


def _plain_entry(data: bytes, start: int, stop: int) -> tuple[str, Tensor] | None:
    """The same as `_entry`, in a third of the time, of a tensor as nearly all writers write it; None for all else.

    That is: name before value; of numbers, keys and shape each one piece at most, packed and in this order.
    """
    try:
        size, begin = varint(data, start + 1)
        place = begin + size
        if data[start] != _FIRST or data[place] != _SECOND:
            return None
        name = data[begin:place]
        size, place = varint(data, place + 1)
        kind = _PLAIN_TENSORS.get(data[place])
        if kind is None or place + size != stop:
            return None
        size, place = varint(data, place + 1)
        if place + size != stop:
            return None
        pieces = []
        numbers_at = -1
        for tag in (_FIRST, _SECOND, _THIRD):
            size = 0
            begin = place
            if place < stop and data[place] == tag:
                size, begin = varint(data, place + 1)
                if tag == _FIRST:
                    numbers_at = begin
            place = begin + size
            pieces.append(data[begin:place])
        if place != stop:
            return None
        return name.decode(), Tensor(kind, pieces[0], pieces[1], _shape(pieces[2]), numbers_at)
    except (IndexError, ValueError):
        return None  # the thorough way says what is wrong, if anything is


@lru_cache(256)
def _shape(packed: bytes) -> tuple[int, ...]:
    """A tensor's shape; that of one record is nearly always that of the one before. Raises ValueError for an impossible one."""
    shape = tuple(varints(packed).tolist()) if packed else ()
    if any(extent >= _MOST for extent in shape) or prod(shape) >= _MOST:
        raise ValueError(f"a tensor of the impossible shape {shape}")
    return shape


def _entry(data: bytes, start: int, stop: int) -> tuple[str, Tensor | Blob | None]:
    """An entry of a map: its key and its value, None for a Value without one."""
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
