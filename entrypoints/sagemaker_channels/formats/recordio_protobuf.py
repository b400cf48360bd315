"""RecordIO-protobuf, SageMaker's own format: each RecordIO record is an `aialgs.data.Record` (see `protobuf_record.py`).

    format="recordio-protobuf"                a sample for each record
    format="recordio-protobuf; batch=1000"    a sample for each 1000 records of an object (of a Pipe, of its stream), stacked: far
                                              faster

Records that one writer made from one matrix are equal except for their numbers. So for a batch the first of them is parsed, and the
next ones are compared with it byte for byte, all together, outside of the numbers; if they are equal, the numbers of all are one
strided view of the bytes. Records that differ (another length, sparse rows, a text of their own) are parsed one by one, and sparse
rows still converted together. Unlike the SDK's writer, ours splits a record at a magic word in its data, as MXNet's format demands.

Source: AWS, "Common Data Formats for Training".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from sagemaker_channels.errors import ChannelError, foreign
from sagemaker_channels.formats import recordio
from sagemaker_channels.formats.cursor import Cursor, go_to
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.protobuf import arrays, count_of, numbers, varints
from sagemaker_channels.formats.protobuf_record import (
    FEATURES,
    LABEL,
    Blob,
    Parsed,
    Path,
    Tensor,
    check_keys,
    decode,
    encode_record,
    parse,
    to_value,
)
from sagemaker_channels.formats.window import CHUNK, Window
from sagemaker_channels.formats.writing import write_each
from sagemaker_channels.sample import KEY, ByteStream, Sample

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_corrupt = partial(foreign, "a record of recordio-protobuf")
_HEADER = struct.Struct("<II")


class SparseRows(NamedTuple):
    """Sparse tensors of one shape, stacked: record i has the values and keys from starts[i] to starts[i + 1]."""

    values: npt.NDArray[Any]
    keys: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    shape: tuple[int, ...]


class _Part:
    """Consecutive records of a batch: for each name an array, filled up to `count`, or a list with a value of each."""

    def __init__(self, form: Any, columns: dict[Path, Any]) -> None:
        self.form = form  # names, types and shapes of arrays that can take further records
        self.columns = columns
        self.count = 0


def _batches(size: int, stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the records of a stream, `size` at a time and the rest last, in the shape of a Record's sample.

    A name's tensors are one array (records, *shape) if all are dense and of one shape, `SparseRows` if all are sparse
    and of one shape, else a list; bytes and texts are lists, with None for a record that lacks them. `as_tensors`
    converts arrays to torch's tensors. Positions are bytes: the first record of the next batch. Raises CorruptError.
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
                cursor.skip(_corrupt(key, offset, error))
                continue
            if not taken:
                break
            count += taken
        if not count:
            return
        try:
            batch = _stack(parts)
        except ValueError as error:
            cursor.skip(_corrupt(key, cursor.position, f"in the {count} records from here, {error}"))
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


class _Layout(NamedTuple):
    """A record with nothing but dense tensors, each in one piece, and where their numbers are."""

    form: list[tuple[Path, str, tuple[int, ...]]]  # names, types and shapes, sorted: maps have no order
    record: npt.NDArray[np.uint8]
    places: list[tuple[int, int, Path, str]]  # begin, end, name and type of the numbers, in order

    def take(self, rows: npt.NDArray[np.uint8], parts: list[_Part], most: int) -> int:
        """Take the first of the rows that equal this record except for its numbers; return how many."""
        np = arrays()
        if rows.shape[1] != len(self.record):
            return 0
        equal = np.ones(len(rows), bool)
        begin = 0
        for start, stop, _, dtype in self.places:
            equal &= (rows[:, begin:start] == self.record[begin:start]).all(axis=1)
            begin = stop
            if dtype == "<i4":
                lasts = rows[:, start:stop] < 128
                equal &= lasts[:, -1] & (lasts.sum(axis=1) == (self.record[start:stop] < 128).sum())
        equal &= (rows[:, begin:] == self.record[begin:]).all(axis=1)
        count = len(rows) if equal.all() else int(equal.argmin())
        if count and not (parts and parts[-1].form == self.form):
            parts.append(_Part(self.form, {path: np.empty((most, *shape), dtype) for path, dtype, shape in self.form}))
        for start, stop, path, dtype in self.places if count else ():
            part, column = parts[-1], rows[:count, start:stop]
            if dtype == "<i4":
                column = numbers(column.tobytes(), dtype).reshape(count, -1).view("u1")
            part.columns[path][part.count : part.count + count].reshape(count, -1).view("u1")[:] = column
        if count:
            parts[-1].count += count
        return count


class _Records:
    """The records of a stream, taken together as long as they have one layout."""

    def __init__(self, window: Window, key: str | None) -> None:
        self._window = window
        self._key = key
        self._stride = 4  # bytes that the last record took
        self._layout: _Layout | None = None  # of the last record if it is dense: the next ones probably have it too

    def take(self, parts: list[_Part], most: int) -> int:
        """Take up to `most` records into the last part or a new one; return how many, 0 at the end."""
        rows = self._rows(most) if self._layout else None
        if self._layout and rows is not None and (count := self._layout.take(rows, parts, most)):
            self._window.position += count * self._stride
            return count
        record = recordio.take(self._window, self._key)
        if record is None:
            return 0
        parsed = parse(record)
        self._layout = _layout(record, parsed)
        if self._layout is not None:
            return self._layout.take(self._layout.record[None], parts, most)
        if not (parts and parts[-1].form is None and parts[-1].columns.keys() == parsed.keys()):
            parts.append(_Part(None, {path: [] for path in parsed}))
        for path, value in parsed.items():
            parts[-1].columns[path].append(value)
        parts[-1].count += 1
        return 1

    def _rows(self, most: int) -> npt.NDArray[np.uint8] | None:
        """Return the payloads of the next records as rows, not yet taken; None unless the window has two of one length."""
        window = self._window
        if window.end - window.position < 2 * self._stride < CHUNK:
            window.extend()
        if window.position + 8 > window.end:
            return None
        magic, length = _HEADER.unpack_from(window.view, window.position)
        stride = self._stride = 8 + length + (-length & 3)
        count = min((window.end - window.position) // stride, most)
        if magic != recordio.MAGIC or not 0 < length <= recordio.MAX_LENGTH or count < 2:
            return None
        view = window.view[window.position : window.position + count * stride]
        rows: npt.NDArray[np.uint8] = arrays().frombuffer(view, "u1").reshape(count, stride)
        same = (rows[:, :8] == rows[0, :8]).all(axis=1)
        return rows[: count if same.all() else int(same.argmin()), 8 : 8 + length]


def _layout(record: bytes, parsed: Parsed) -> _Layout | None:
    """Return the layout of a record; None if it has anything but dense tensors in one piece."""
    form, places = [], []
    for path, tensor in parsed.items():
        if not isinstance(tensor, Tensor) or tensor.sparse or not tensor.values or tensor.place < 0:
            return None
        form.append((path, tensor.dtype, to_value(tensor).shape))
        places.append((tensor.place, tensor.place + len(tensor.values), path, tensor.dtype))
    return _Layout(sorted(form), arrays().frombuffer(record, "u1"), sorted(places))


def _stack(parts: list[_Part]) -> Sample:
    """Return the batch of these parts. Raises ValueError if keys, values and shape of a tensor do not fit together."""
    batch: Sample = {FEATURES: {}, LABEL: {}}
    for path in dict.fromkeys(path for part in parts for path in part.columns):
        kind, name = path
        values = _joined([part.columns.get(path, [None] * part.count)[: part.count] for part in parts])
        if kind in (FEATURES, LABEL):
            batch[kind][name] = values
        else:
            batch[kind] = values
    return batch


def _joined(columns: list[Any]) -> Any:
    """Return a name's values of all records."""
    np = arrays()
    shapes = {(column.dtype, column.shape[1:]) if isinstance(column, np.ndarray) else None for column in columns}
    if len(shapes) == 1 and None not in shapes:
        return columns[0] if len(columns) == 1 else np.concatenate(columns)
    values = [value for column in columns for value in column]
    first = values[0]
    if all(
        isinstance(value, Tensor) and value.sparse and (value.dtype, value.shape) == (first.dtype, first.shape)
        for value in values
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
    check_keys(keys, first.shape)
    return SparseRows(values, keys, np.array([0, *accumulate(counts)], np.int64), first.shape)


def _with_options(options: Mapping[str, str]) -> Format:
    size = options["batch"]
    if not (size.isascii() and size.isdigit() and int(size)):
        raise ChannelError(
            f"recordio-protobuf: batch is {size!r}", remedy="write how many records a batch has: batch=1000"
        )
    chosen, read = (("batch", str(int(size))),), partial(_batches, int(size))
    return replace(FORMAT, chosen=chosen, read=read, framing=None, decode=None)  # A sample is a whole batch.


FORMAT = Format(
    name="recordio-protobuf",
    content_types=("application/x-recordio-protobuf",),
    sample="`features` and `label`, each a dict of arrays",
    write=partial(write_each, lambda sample: recordio.encode(encode_record(sample))),
    ending=".pbr",
    begins=recordio.is_own,
    framing=recordio.FORMAT,
    decode=decode,
    after_damage="the next record; after a damaged header, the next object",
    options=("batch",),
    with_options=_with_options,
    example=lambda _, data: {FEATURES: {"x": Blob([data], "")}},
)
