"""RecordIO-protobuf as whole batches: the values of many records, stacked.

Records that one writer made from one matrix are equal except for their numbers. So the first of them is parsed, and the
next ones are compared with it byte for byte, all together, outside of the numbers; if they are equal, the numbers of
all are one strided view of the bytes, and one copy moves them into the batch. Records that differ (another length, sparse
rows, a text of their own) are parsed one by one, and their numbers still converted together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from sagemaker_channels.formats.cursor import Cursor, go_to
from sagemaker_channels.formats.protobuf import arrays, count_of, numbers, varints
from sagemaker_channels.formats.recordio import protobuf_record as proto
from sagemaker_channels.formats.recordio import recordio
from sagemaker_channels.formats.recordio.protobuf_record import FEATURES, LABEL, Parsed, Tensor, parse, to_value
from sagemaker_channels.formats.window import CHUNK, Window
from sagemaker_channels.sample import KEY, ByteStream, Sample

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_HEADER = struct.Struct("<II")


class SparseRows(NamedTuple):
    """Sparse tensors of one shape, stacked: record i has the values and keys from starts[i] to starts[i + 1]."""

    values: npt.NDArray[Any]
    keys: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    shape: tuple[int, ...]


def batches(size: int, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the records of a stream, `size` at a time and the rest last, in the shape of a Record's sample.

    A name's tensors are one array (records, *shape) if all are dense and of one shape, `SparseRows` if all are sparse
    and of one shape, else a list; bytes and texts are lists, with None for a record that lacks them. `as_tensors`
    converts arrays to torch's tensors. Positions are bytes: the first record of the next batch.

    Raises:
        CorruptError: A record is damaged or cut.
    """
    go_to(stream, cursor.start, key)
    window = Window(stream, cursor.start)
    records = _Records(window, key)
    while True:
        parts: list[_Part] = []
        count = 0
        while count < size:
            offset = window.offset
            try:
                taken = records.take(parts, size - count)
            except ValueError as error:
                damage = proto.corrupt_record(key, offset, error)
                if window.offset == offset:
                    raise damage from error
                cursor.skip(damage)
                continue
            if taken == 0:
                break
            count += taken
        if not count:
            return
        try:
            batch = _stack(parts)
        except ValueError as error:
            what = f"in the {count} records from here, {error}"
            cursor.skip(proto.corrupt_record(key, cursor.position, what))
            cursor.position = window.offset
            continue
        cursor.position = window.offset
        if key is not None:
            batch[KEY] = [key] * count
        yield batch


def as_tensors(batch: Sample) -> Sample:
    """Return a batch with its arrays as torch's tensors, not copied; SparseRows become sparse (records, flattened shape)."""
    import torch

    def convert(value: Any) -> Any:
        if isinstance(value, SparseRows):
            np = arrays()
            rows = np.repeat(np.arange(len(value.starts) - 1), np.diff(value.starts))
            places = torch.from_numpy(np.stack((rows, value.keys.astype(np.int64))))
            width = prod(value.shape) if value.shape else int(value.keys.max(initial=0)) + 1
            shape = (len(value.starts) - 1, width)
            # The keys have been checked, and torch's check takes longer than all the rest.
            return torch.sparse_coo_tensor(places, torch.from_numpy(value.values), shape, check_invariants=False)
        return torch.from_numpy(value) if isinstance(value, arrays().ndarray) else value

    return {
        kind: {name: convert(value) for name, value in content.items()} if isinstance(content, dict) else content
        for kind, content in batch.items()
    }


@dataclass
class _Part:
    """Consecutive records of a batch: of one layout, as arrays filled so far, or each as it was parsed."""

    form: Any = None  # the names, types and shapes that all have
    columns: dict[tuple[str, str], npt.NDArray[Any]] = field(default_factory=dict)
    parsed: list[Parsed] = field(default_factory=list)
    count: int = 0


class _Layout(NamedTuple):
    """A record with nothing but dense tensors, each in one piece, and the offsets of their numbers."""

    form: list[tuple[tuple[str, str], str, tuple[int, ...]]]  # names, types and shapes, sorted: maps have no order
    record: npt.NDArray[np.uint8]
    places: list[tuple[tuple[str, str], str, int, int]]  # names, types, begins and ends, in their order in the record

    def columns(self, rows: npt.NDArray[np.uint8]) -> tuple[int, dict[tuple[str, str], npt.NDArray[np.uint8]]]:
        """Return how many of the first rows equal this record except for its numbers, and the numbers' bytes by name."""
        if rows.shape[1] != len(self.record):
            return 0, {}
        np = arrays()
        equal = np.ones(len(rows), bool)
        columns = {}
        begin = 0
        for name, dtype, start, stop in self.places:
            equal &= (rows[:, begin:start] == self.record[begin:start]).all(axis=1)
            begin = stop
            columns[name] = rows[:, start:stop]
            if dtype == "<i4":
                equal &= (columns[name] < 128).sum(axis=1) == (self.record[start:stop] < 128).sum()
                equal &= columns[name][:, -1] < 128
        equal &= (rows[:, begin:] == self.record[begin:]).all(axis=1)
        count = len(rows) if equal.all() else int(equal.argmin())
        for name, dtype, _, _ in self.places:
            if dtype == "<i4" and count:
                flat = numbers(columns[name][:count].tobytes(), dtype)
                columns[name] = flat.reshape(count, -1).view("u1")
        return count, columns


class _Records:
    """The records of a stream, taken together as long as they have one layout."""

    def __init__(self, window: Window, key: str | None) -> None:
        self._window = window
        self._key = key
        self._stride = 4  # bytes that the last record took
        self._layout: _Layout | None = None  # of the last record if it is dense: the next ones probably have it too

    def take(self, parts: list[_Part], most: int) -> int:
        """Take up to `most` records into the last part or a new one; return how many, 0 at the end."""
        rows = self._run(most) if self._layout else None
        if self._layout is None or rows is None:
            return self._take_one(parts, most)
        count, columns = self._layout.columns(rows)
        if not count:
            return self._take_one(parts, most)
        _put(parts, most, self._layout, count, columns)
        self._window.position += count * (8 + rows.shape[1] + (-rows.shape[1] & 3))
        return count

    def _take_one(self, parts: list[_Part], most: int) -> int:
        record = recordio.take(self._window, self._key)
        if record is None:
            return 0
        parsed = parse(record)
        self._layout = _layout(record, parsed)
        if self._layout is not None:
            _put(parts, most, self._layout, *self._layout.columns(self._layout.record[None]))
            return 1
        if not parts or parts[-1].form is not None:
            parts.append(_Part())
        parts[-1].parsed.append(parsed)
        return 1

    def _run(self, most: int) -> npt.NDArray[np.uint8] | None:
        """Return the payloads of the next records as rows, not yet taken; None unless the window has two of one length."""
        window = self._window
        if window.end - window.position < 2 * self._stride < CHUNK:
            window.extend()
        if window.position + 8 > window.end:
            return None
        header = magic, length = _HEADER.unpack_from(window.view, window.position)
        stride = self._stride = 8 + length + (-length & 3)
        count = min((window.end - window.position) // stride, most)
        if magic != recordio.MAGIC or not 0 < length <= recordio.MAX_LENGTH or count < 2:
            return None
        if _HEADER.unpack_from(window.view, window.position + stride) != header:
            return None
        view = window.view[window.position : window.position + count * stride]
        rows: npt.NDArray[np.uint8] = arrays().frombuffer(view, "u1").reshape(count, stride)
        same = (rows[:, :8] == rows[0, :8]).all(axis=1)
        return rows[: count if same.all() else int(same.argmin()), 8 : 8 + length]


def _layout(record: bytes, parsed: Parsed) -> _Layout | None:
    """Return the layout of a record; None if it has anything but dense tensors in one piece."""
    form = []
    places = []
    for name, tensor in parsed.items():
        if not isinstance(tensor, Tensor) or tensor.sparse or not tensor.values or tensor.place < 0:
            return None
        form.append((name, tensor.dtype, to_value(tensor).shape))
        places.append((name, tensor.dtype, tensor.place, tensor.place + len(tensor.values)))
    return _Layout(sorted(form), arrays().frombuffer(record, "u1"), sorted(places, key=lambda place: place[2]))


def _put(parts: list[_Part], most: int, layout: _Layout, count: int, columns: Mapping[Any, npt.NDArray[Any]]) -> None:
    """Put rows of a layout into the last part if it has the same form, else into a new one for `most` records."""
    if not parts or parts[-1].form != layout.form:
        np = arrays()
        parts.append(_Part(layout.form, {name: np.empty((most, *shape), dtype) for name, dtype, shape in layout.form}))
    part = parts[-1]
    for name, column in columns.items():
        part.columns[name][part.count : part.count + count].reshape(count, -1).view("u1")[:] = column[:count]
    part.count += count


def _stack(parts: list[_Part]) -> Sample:
    """Return the batch of these parts."""
    batch: Sample = {FEATURES: {}, LABEL: {}}
    if len(parts) == 1 and parts[0].form is not None:
        part = parts[0]
        for (kind, name), column in part.columns.items():
            batch[kind][name] = column[: part.count]
        return batch
    for path in dict.fromkeys(path for part in parts for found in (part.columns, *part.parsed) for path in found):
        values: list[Any] = []
        for part in parts:
            if part.form is None:
                values.extend(parsed.get(path) for parsed in part.parsed)
            else:
                values.extend(part.columns[path][: part.count] if path in part.columns else [None] * part.count)
        kind, name = path
        if kind in (FEATURES, LABEL):
            batch[kind][name] = _stack_values(values)
        else:
            batch[kind] = values
    return batch


def _stack_values(values: list[Any]) -> Any:
    np = arrays()
    first = values[0]
    if all(isinstance(value, Tensor) and value.sparse for value in values) and all(
        value.dtype == first.dtype and value.shape == first.shape for value in values
    ):
        return _sparse_rows(values)
    values = [to_value(value) if isinstance(value, Tensor) else value for value in values]
    shapes = {(value.dtype, value.shape) if isinstance(value, np.ndarray) else None for value in values}
    return np.stack(values) if len(shapes) == 1 and None not in shapes else values


def _sparse_rows(tensors: list[Tensor]) -> SparseRows:
    """Stack sparse tensors of one type and shape. Raises ValueError if keys, values and shape do not fit together."""
    np = arrays()
    first = tensors[0]
    values = numbers(b"".join(tensor.values for tensor in tensors), first.dtype)
    keys = varints(b"".join(tensor.keys for tensor in tensors))
    counts = [count_of(tensor.values, first.dtype) for tensor in tensors]
    if [count_of(tensor.keys, "<u8") for tensor in tensors] != counts:
        raise ValueError("the keys and values of a sparse tensor differ in number")
    proto.check_keys(keys, first.shape)
    return SparseRows(values, keys, np.array([0, *accumulate(counts)], np.int64), first.shape)
