"""The check of a Parquet file that pyarrow leaves out: that it is not two joined files.

pyarrow would read the first of them by the table of the second. Its own view of single columns cannot be used: if the table is
damaged, asking for it may end the process.

Source: parquet.apache.org, "File Format"; Thrift's compact protocol, in which the table is written.
"""

from __future__ import annotations

from typing import Any

from sagemaker_channels.formats import signatures
from sagemaker_channels.formats.protobuf import varint
from sagemaker_channels.formats.seeking import SeekableFile

MAGIC = b"PAR1"
_TAIL = 1 << 13  # bytes that hold most tables

# Numbers of fields.
_GROUPS = 4  # of the table
_COLUMNS = 1  # of a row group
_META = 3  # of a column chunk
_PACKED, _DATA_PAGE, _DICTIONARY_PAGE = 7, 9, 11  # of its meta data

Fields = dict[int, Any]


def check(file: SeekableFile) -> None:
    """Raise ValueError if a file is not one whole Parquet file, or its footer is damaged."""
    head = file.read(signatures.SIZE)
    start = head[: len(MAGIC)]
    if start != MAGIC and (problem := signatures.problem_of(head)):
        raise ValueError(problem)
    file.seek(max(0, file.size - _TAIL))
    tail = file.read()
    if file.size < 12 or start != MAGIC or not tail.endswith(MAGIC):
        raise ValueError(f"it begins with {start!r} and ends with {tail[-4:]!r}; expected {MAGIC!r} for both")
    place = file.size - 8 - int.from_bytes(tail[-8:-4], "little")
    if place < 4:
        raise ValueError("its footer is longer than the file")
    try:
        table, _ = _struct(_read(file, place, file.size - 8 - place), 0)
        _check_joined(file, place, [column for group in table.get(_GROUPS, ()) for column in group[_COLUMNS]])
    except (IndexError, KeyError, TypeError, AttributeError, StopIteration, RuntimeError) as error:
        raise ValueError("its footer is damaged") from error
    finally:
        file.seek(0)


def _check_joined(file: SeekableFile, place: int, chunks: list[Fields]) -> None:
    """Raise ValueError if another file ends where this one begins, according to the table at `place`."""
    end = 4
    for chunk in chunks:
        # The content, and the offset index, column index and bloom filter if they exist.
        meta = chunk[_META]
        parts = ((_begin(meta), meta[_PACKED]), (chunk.get(4), chunk.get(5)), (chunk.get(6), chunk.get(7)))
        end = max([end, *(start + size for start, size in (*parts, (meta.get(14), meta.get(15))) if start and size)])
    if place - end >= 8 and _read(file, place - end - 4, 8) == MAGIC * 2:
        raise ValueError(f"another file ends at byte {place - end}: Parquet files cannot be joined, write one")


def _begin(meta: Fields) -> int:
    """Return where a column chunk's first page is; 0 if it has none."""
    places: list[int] = [meta[_DATA_PAGE], meta.get(_DICTIONARY_PAGE, 0)]
    return min((place for place in places if place > 0), default=0)


def _read(file: SeekableFile, place: int, size: int) -> bytes:
    if place < 0 or place + size > file.size:
        raise ValueError(f"it refers to bytes {place} to {place + size}, but has {file.size}")
    file.seek(place)
    return file.read(size)


def _struct(data: bytes, place: int) -> tuple[Fields, int]:
    """Return a struct's fields by their numbers, and where it ends."""
    fields: Fields = {}
    number = 0
    while kind := data[place]:
        place += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, place = _number(data, place)
        fields[number], place = _value(data, place, kind & 15)
    return fields, place + 1


def _value(data: bytes, place: int, kind: int) -> tuple[Any, int]:
    if 4 <= kind <= 6:
        return _number(data, place)
    if kind == 12:
        return _struct(data, place)
    if kind == 8:
        size, place = varint(data, place)
        if place + size > len(data):
            raise IndexError
        return data[place : place + size], place + size
    if kind == 9:
        count, kind = data[place] >> 4, data[place] & 15
        place += 1
        if count == 15:
            count, place = varint(data, place)
        if count > len(data):
            raise IndexError
        values = []
        for _ in range(count):
            value, place = _value(data, place, kind)
            values.append(value)
        return values, place
    if kind in (1, 2, 3, 7):  # true, false, a byte, a double
        return None, place + {3: 1, 7: 8}.get(kind, 0)
    raise ValueError(f"a field of kind {kind}")


def _number(data: bytes, place: int) -> tuple[int, int]:
    if (value := data[place]) < 128:  # as nearly all are
        return value >> 1 ^ -(value & 1), place + 1
    value, place = varint(data, place)
    return value >> 1 ^ -(value & 1), place
