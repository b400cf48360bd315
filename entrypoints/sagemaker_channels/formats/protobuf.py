"""The part of protocol buffers' wire format that records of TensorFlow and SageMaker use, without the protobuf package.

A message is a sequence of fields, each a tag (number << 3 | wire type) and a value: a varint (0), 8 bytes (1), a length and as
many bytes (2: text, bytes, messages, packed numbers), or 4 bytes (5). Groups (3, 4) are obsolete and treated as damage. Errors
are ValueErrors; formats turn them into CorruptErrors with the record's offset.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIRST, SECOND = 1 << 3 | BYTES, 2 << 3 | BYTES  # tags
_FEW_BYTES = 128  # up to which plain Python decodes numbers faster than numpy
_MASK = (1 << 64) - 1
_CONTINUED = bytes(range(128, 256))  # bytes of a varint that are not its last
_CUT = "a message or a number in it is cut off or damaged"


def fields(data: bytes, place: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the message in data[place:end]: tag, and begin and end of the value (for BYTES, of its content)."""
    while place < end:
        tag = data[place]
        place += 1
        if tag > 127:
            tag, place = varint(data, place - 1)
        wire = tag & 7
        if wire == BYTES:
            if place >= end:
                raise ValueError(_CUT)
            size = data[place]
            place += 1
            if size > 127:
                size, place = varint(data, place - 1)
            start = place
            place += size
        elif wire == VARINT:
            start = place
            _, place = varint(data, place)
        elif wire in (FIXED32, FIXED64):
            start = place
            place += 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"a field has the unknown wire type {wire}")
        if place > end or tag < 8:
            raise ValueError(_CUT)
        yield tag, start, place


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the unsigned number that begins at a place, and its end."""
    try:
        byte, second = data[place], data[place + 1] if data[place] > 127 else 0
        if byte < 128:
            return byte, place + 1
        if second < 128:
            return second << 7 | byte & 127, place + 2
        value = second << 7 & 0x3F80 | byte & 127
        for digit in range(2, 10):
            byte = data[place + digit]
            value |= (byte & 127) << 7 * digit
            if byte < 128:
                return value & _MASK, place + digit + 1
    except IndexError:
        pass
    raise ValueError(_CUT)


def entry(data: bytes, start: int, stop: int) -> tuple[str, int, list[tuple[int, int, int]]]:
    """Return an entry of a map to messages of which each has a list in one of its fields, the last if there are several.

    Those are the key, the tag of that field, 0 if there is none, and the fields of the list.
    """
    regions: list[tuple[int, int, int]] = []
    try:  # in the way of nearly all writers, in a third of the time
        begin, place = content(data, start, FIRST)
        name = data[begin:place]
        value, end = content(data, place, SECOND)
        kind = data[value]
        place, last = content(data, value, kind)
        while place < last:
            tag = data[place]
            begin, place = content(data, place, tag)
            if tag & 0x87 != BYTES:
                raise ValueError(_CUT)
            regions.append((tag, begin, place))
        if place == last == end == stop and kind & 0x87 == BYTES:
            return name.decode(), kind, regions
    except (IndexError, ValueError):
        pass  # What follows finds what is wrong, if anything is.
    name, kind, regions = b"", 0, []
    for tag, begin, end in fields(data, start, stop):
        if tag == FIRST:
            name = data[begin:end]
        elif tag == SECOND:
            for inner, place, last in fields(data, begin, end):
                if inner & 7 != BYTES:
                    raise ValueError(f"value {name!r} is of wire type {inner & 7}")
                if inner != kind:
                    kind, regions = inner, []
                regions += fields(data, place, last)
        else:
            raise ValueError(f"its entry has the unknown field {tag >> 3}")
    return name.decode(), kind, regions


def content(data: bytes, place: int, tag: int) -> tuple[int, int]:
    """Return begin and end of the content of the field at a place. Raises ValueError or IndexError if it has another tag.

    For messages as nearly all writers write them: three times as fast as `fields`, which reads any.
    """
    if data[place] != tag:
        raise ValueError(_CUT)
    size = data[place + 1]
    if size < 128:
        return place + 2, place + 2 + size
    if (second := data[place + 2]) < 128:
        return place + 3, place + 3 + (second << 7 | size & 127)
    size, start = varint(data, place + 1)
    return start, start + size


@cache
def arrays() -> Any:
    """Return numpy, imported when it is first needed: the cache is faster than an import statement."""
    import numpy

    return numpy


def varints(data: bytes) -> npt.NDArray[np.uint64]:
    """Decode packed numbers as unsigned; `.view(np.int64)` makes them signed."""
    np = arrays()
    array: npt.NDArray[Any]
    if data and data[-1] > 127:
        raise ValueError(_CUT)
    if data.isascii():  # a byte each
        array = np.frombuffer(data, np.uint8).astype(np.uint64)
        return array
    if len(data) <= _FEW_BYTES:
        found, value, shift = [], 0, 0
        for byte in data:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                if shift > 70:
                    raise ValueError(_CUT)
                found.append(value & _MASK)
                value = shift = 0
        array = np.array(found, np.uint64)
        return array
    # A byte before the first number, as if one ended there, makes every number begin after the end of one; those after the
    # last number can be read without a check.
    padded = b"\0" + data + bytes(9)
    raw = np.frombuffer(padded, np.uint8)
    ends = (raw[: len(data) + 1] < 128).nonzero()[0]
    starts, raw = ends[:-1], raw[1:]
    lengths = ends[1:] - starts
    longest = int(lengths.max())
    if longest > 10:
        raise ValueError(_CUT)
    # From the first byte of each number, as many bytes as the longest takes are one machine integer.
    wide = np.dtype("<u2" if longest <= 2 else "<u4" if longest <= 4 else "<u8")
    words = np.ndarray((len(data),), wide, padded, 1, (1,)).take(starts)
    words &= _own_bytes(wide).take(lengths, mode="clip")
    array = words & 127
    for place in range(1, min(longest, 8)):
        array |= words >> place & 127 << 7 * place
    array = array.astype(np.uint64, copy=False)
    for place in range(8, longest):
        which = (lengths > place).nonzero()[0]
        array[which] |= (raw[starts[which] + place] & 127).astype(np.uint64) << np.uint64(7 * place)
    return array


@cache
def _own_bytes(wide: Any) -> Any:
    """Return for integers of this type the masks of their first 0, 1, 2 ... bytes."""
    return arrays().array([(1 << 8 * length) - 1 for length in range(wide.itemsize + 1)], wide)


def joined(data: bytes, regions: Iterable[tuple[int, int, int]], wire: int) -> bytes:
    """Return a repeated field of numbers as if packed, from its regions in `fields`; `wire` is the wire type of one number."""
    pieces = []
    for tag, start, stop in regions:
        if tag & 7 not in (wire, BYTES):
            raise ValueError(f"a list of numbers has wire type {tag & 7}")
        pieces.append(data[start:stop])
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def numbers(data: bytes, dtype: str) -> npt.NDArray[Any]:
    """Decode a packed field: `dtype` is "<f4" or "<f8", or a type of integers, which are varints on the wire."""
    array: npt.NDArray[Any]
    if dtype in ("<f4", "<f8"):
        array = arrays().frombuffer(data, dtype).copy()  # a copy is writable, as torch wants it
    elif len(data) == 1 and data[0] < 128:
        array = arrays().array((data[0],), dtype)
    else:
        array = varints(data).view("<i8").astype(dtype, copy=False)
    return array


def count_of(data: bytes, dtype: str) -> int:
    """Return how many numbers a packed field has. Raises ValueError if the last one is cut off."""
    size = {"<f4": 4, "<f8": 8}.get(dtype)
    if size is not None:
        if len(data) % size:
            raise ValueError(f"{len(data)} bytes are not a whole count of {size}-byte numbers")
        return len(data) // size
    if data and data[-1] > 127:
        raise ValueError("a number is cut off")
    return len(data.translate(None, _CONTINUED))


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative as a varint."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varints(values: npt.NDArray[Any]) -> bytes:
    """Encode integers of one dimension as packed varints; negative ones take ten bytes each."""
    np = arrays()
    column = values.astype(np.int64).view(np.uint64)[:, None]
    digits = (column >> (np.arange(10, dtype=np.uint64) * np.uint64(7))) & np.uint64(127)
    last = 9 - np.argmax(digits[:, ::-1] != 0, axis=1)
    last[~digits.any(axis=1)] = 0
    place = np.arange(10)
    digits[place < last[:, None]] |= np.uint64(128)
    encoded: bytes = digits[place <= last[:, None]].astype(np.uint8).tobytes()
    return encoded


def encode(number: int, content: bytes) -> bytes:
    """Encode a field of text, bytes, a message or packed numbers."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(content)) + content
