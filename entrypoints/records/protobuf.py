"""Protocol buffers' wire format, as much as the records of TensorFlow and SageMaker need, without the protobuf package.

A message is a row of fields, each a tag (number << 3 | wire type) and a value: a varint (0), 8 bytes (1), a length and as
many bytes (2: text, bytes, messages, packed numbers), or 4 bytes (5). Groups (3, 4) are long gone and count as damage. What
is wrong is a ValueError here; formats make it a CorruptError with the record's place.

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
_FEW = 16  # numbers up to which plain Python is faster than numpy
_MASK = (1 << 64) - 1
_CUT = "a message or a number in it is cut off or damaged"


def fields(data: bytes, place: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of the message in data[place:end]: tag, and where the value (of BYTES: its content) begins and ends."""
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
            raise ValueError(f"a field of wire type {wire}, which there is not")
        if place > end or tag < 8:
            raise ValueError(_CUT)
        yield tag, start, place


def varint(data: bytes, place: int) -> tuple[int, int]:
    """The number that begins at a place, without sign, and where it ends."""
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


@cache
def arrays() -> Any:
    """numpy, imported when it is first needed: a look into the cache costs less than an import statement's."""
    import numpy

    return numpy


def varints(data: bytes) -> npt.NDArray[np.uint64]:
    """Packed numbers, which `.view(np.int64)` gives their sign."""
    np = arrays()
    array: npt.NDArray[Any]
    if data and data[-1] > 127:
        raise ValueError(_CUT)
    if len(data) <= _FEW:
        few, place = [], 0
        while place < len(data):
            value, place = varint(data, place)
            few.append(value)
        array = np.array(few, np.uint64)
        return array
    if data.isascii():  # a byte each
        array = np.frombuffer(data, np.uint8).astype(np.uint64)
        return array
    # A byte before the first number, as if one ended there, makes every number begin where one has ended; those behind the
    # last are there to be looked at.
    raw = np.frombuffer(b"\0" + data + bytes(9), np.uint8)
    ends = (raw[: len(data) + 1] < 128).nonzero()[0]
    starts, raw = ends[:-1], raw[1:]
    longest = int((ends[1:] - starts).max())
    if longest > 10:
        raise ValueError(_CUT)
    if longest * len(starts) == len(data):
        return _of_one_width(raw[: len(data)].reshape(-1, longest))
    # What is done with wide types costs most: it is done for the numbers alone, and in the narrowest type.
    wide = np.uint32 if longest <= 4 else np.uint64
    digits = raw & 127
    array = digits.take(starts).astype(wide)
    goes_on = belongs = (raw.view(np.int8) >> 7).view(np.uint8)  # all ones or all zeros
    for place in range(1, longest):
        digit = (digits[place:] & belongs[:-1]).take(starts).astype(wide)
        digit <<= wide(7 * place)
        array |= digit
        belongs = belongs[:-1] & goes_on[place:]
    return array.astype(np.uint64)


def _of_one_width(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Numbers that take as many bytes each, which are a row's."""
    np = arrays()
    array: npt.NDArray[Any] = rows[:, -1].astype(np.uint64)
    for place in range(rows.shape[1] - 2, -1, -1):
        array <<= np.uint64(7)
        array |= rows[:, place] & 127
    return array


def joined(data: bytes, regions: Iterable[tuple[int, int, int]], wire: int) -> bytes:
    """The numbers of a repeated field as if packed, from its regions as `fields` gives them: packed, one by one, or both.

    `wire` is the type of one number.
    """
    pieces = []
    for tag, start, stop in regions:
        if tag & 7 not in (wire, BYTES):
            raise ValueError(f"a list of numbers as wire type {tag & 7}")
        pieces.append(data[start:stop])
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def numbers(data: bytes, dtype: str) -> npt.NDArray[Any]:
    """The numbers of a packed field: `dtype` is "<f4" or "<f8", or a type of integers, whose wire form is varints."""
    array: npt.NDArray[Any]
    if dtype in ("<f4", "<f8"):
        array = arrays().frombuffer(data, dtype).copy()  # a copy can be written to, as torch wants it
    elif len(data) == 1 and data[0] < 128:
        array = arrays().array((data[0],), dtype)
    else:
        array = varints(data).view("<i8").astype(dtype, copy=False)
    return array


def encode_varint(value: int) -> bytes:
    """A number that is not negative, as a varint."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varints(values: npt.NDArray[Any]) -> bytes:
    """Integers of one dimension, packed; negative ones take ten bytes each."""
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
    """A field of text, bytes, a message or packed numbers."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(content)) + content
