"""RecordIO, MXNet's record format, in which Pipe mode wraps objects.

A record is a little-endian magic word, a word with a 3-bit flag and a 29-bit length, and the payload padded to 4 bytes. A
payload with the magic word at a 4-byte boundary may have been split there (flags 1 first, 2 middle, 3 last part); joining the
parts puts the magic word back. Lengths are trusted and the magic word is never searched for: some writers, SageMaker's among
them, leave it inside whole records.

Source: MXNet/dmlc-core `recordio.h`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from operator import itemgetter
from typing import BinaryIO

from sagemaker_channels.errors import ChannelError, CorruptError, foreign
from sagemaker_channels.formats.cursor import OTHER, Cursor, go_to
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.window import CHUNK, Window, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import data_of, write_each
from sagemaker_channels.sample import DATA, KEY, ByteStream, Sample, sample_of

MAGIC = 0xCED7230A
MAX_LENGTH = (1 << 29) - 1  # bytes of one part
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
_HEADER = struct.Struct("<II")
MAGIC_BYTES = struct.pack("<I", MAGIC)
_corrupt = partial(foreign, "RecordIO")


def payloads(stream: ByteStream, key: str | None = None, cursor: Cursor | None = None) -> Iterator[bytes]:
    """Yield the payload of each record of an uncompressed stream, with its parts joined; positions are byte offsets."""
    return map(itemgetter(DATA), _read(stream, key, cursor or Cursor()))


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples of an uncompressed stream; built inline, since a function call for each small record is slow."""
    go_to(stream, cursor.start, key)
    first, others = cursor.turns[0], cursor.turns[1] - 1
    window = Window(stream, cursor.start)
    last = -1  # the length before
    left = first  # records that are not needed, before the next one that is
    while True:
        # Whole records in the window: nearly all of them, so without a call for each. They begin at multiples of four bytes
        # from the first, and reading words of memory is faster than struct. (On a big-endian machine no word is the magic
        # word, and the code below reads all records.)
        view, start, offset = window.view, window.position, window.offset
        words = view[start : start + (window.end - start & ~3)].cast("I")
        place, count = 0, len(words)
        while place + 2 <= count and words[place] == MAGIC:
            length = words[place + 1]
            after = place + (length + 11 >> 2)
            if after > count:  # also if it is a part, whose flag makes the length huge
                break
            if left:
                left -= 1
                place = after
                cursor.position = offset + 4 * after
                yield OTHER
            elif others == 0 and length == last and after + 2 <= count and words[after + 1] == length:
                # After three of one length, more may follow, and struct unpacks them much faster than slices do.
                stride = after - place
                run = view[start + 4 * place : start + 4 * (count - (count - place) % stride)]
                expected, position = length << 32 | MAGIC, offset + 4 * place
                for header, payload in struct.iter_unpack(f"<Q{length}s{-length & 3}x", run):
                    if header != expected:
                        break
                    cursor.position = position = position + 4 * stride
                    yield {DATA: payload} if key is None else {KEY: key, DATA: payload}
                place = position - offset >> 2
            else:
                last, left = length, others
                begin = start + 4 * place + 8
                place = after
                cursor.position = offset + 4 * after
                payload = view[begin : begin + length].tobytes()  # faster than bytes()
                yield {DATA: payload} if key is None else {KEY: key, DATA: payload}
        window.position = start + 4 * place
        # One record that spans windows, is split in parts or is damaged.
        whole = take(window, key, skips=left > 0)
        cursor.position = window.offset
        if whole is None:
            return
        yield OTHER if left else sample_of(whole, key)
        left = left - 1 if left else others


def unwrapped(
    stream: ByteStream, split: Callable[[ByteStream, str | None], Iterator[Sample]], damage: Cursor
) -> Iterator[Sample]:
    """Yield what `split` yields for each record of a stream, as a Pipe wraps objects. Errors name the record's offset.

    After damage that the cursor `damage` skips, the next record follows; damage between records is an error.
    """
    cursor = Cursor()
    offset = 0
    for payload in payloads(stream, None, cursor):
        try:
            yield from split(BytesIO(payload), None)
        except ChannelError as error:
            text = f"object at byte {offset} of the Pipe, {error}"
            if not isinstance(error, CorruptError):
                raise type(error)(text) from error.__cause__
            damage.skip(_located(error, text, offset))
        offset = cursor.position


def _located(error: CorruptError, text: str, offset: int) -> CorruptError:
    located = type(error)(text)
    located.position, located.__cause__ = offset, error.__cause__
    return located


def is_own(head: bytes) -> bool:
    """Return whether a stream with these first bytes is RecordIO."""
    return head.startswith(MAGIC_BYTES)


def take(window: Window, key: str | None, *, skips: bool = False) -> bytes | None:
    """Return the payload of the next record, with its parts joined, or skip it; None at the stream's end."""
    parts: list[bytes] = []
    held = 0  # bytes of the parts
    started = window.offset
    while header := window.take(8):
        offset = window.offset - len(header)
        if len(header) < 8:
            raise _corrupt(key, offset, f"the stream ends {8 - len(header)} bytes before the end of a record's header")
        magic, word = _HEADER.unpack(header)
        if magic != MAGIC:
            raise _corrupt(key, offset, f"expected the magic word {MAGIC:#010x}, found {magic:#010x}")
        flag, length = word >> 29, word & MAX_LENGTH
        if flag not in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)):
            place = f"inside the one that begins at byte {started}" if parts else "outside a record in parts"
            raise _corrupt(key, offset, f"a record with continuation flag {flag} {place}")
        held += length
        if held > CHUNK and held > (most := max_sample_bytes()):
            raise too_large(key, offset, f"a record of {held:,} bytes", most)
        parts.append(b"" if skips else window.take(length))
        if missing := length - len(parts[-1]) + (-length & 3) - window.skip((length if skips else 0) + (-length & 3)):
            raise _corrupt(key, offset, f"the stream ends {missing} bytes before the end of this record")
        if flag in (_WHOLE, _LAST):
            return MAGIC_BYTES.join(parts)
    if parts:
        raise _corrupt(key, window.offset, f"the stream ends inside the record in parts that begins at byte {started}")
    return None


def write(stream: BinaryIO, records: Iterable[bytes]) -> int:
    """Write payloads as records, and return their number. Raises ValueError for 512 MiB or more, the format's limit."""
    count = 0
    for record in records:
        stream.writelines(encode(record))
        count += 1
    return count


def encode(record: bytes) -> list[bytes]:
    """Return the pieces of one record, split at magic words in the payload, as MXNet's writer does."""
    if len(record) > MAX_LENGTH:
        raise ValueError(f"it has {len(record)} bytes; a RecordIO record holds at most {MAX_LENGTH}")
    parts = _parts(record)
    last = len(parts) - 1
    flags = [_FIRST, *[_MIDDLE] * (last - 1), _LAST] if last else [_WHOLE]
    pieces: list[bytes] = []
    for flag, part in zip(flags, parts, strict=True):
        pieces += _HEADER.pack(MAGIC, flag << 29 | len(part)), part, bytes(-len(part) & 3)
    return pieces


def _parts(payload: bytes) -> list[bytes]:
    places = [found.start() for found in re.finditer(re.escape(MAGIC_BYTES), payload) if found.start() % 4 == 0]
    starts, ends = [0, *(place + 4 for place in places)], [*places, len(payload)]
    return [payload[start:end] for start, end in zip(starts, ends, strict=True)]


FORMAT = Format(
    name="recordio",
    content_types=("application/x-recordio",),
    sample="a record's bytes in `data`",
    read=_read,
    begins=is_own,
    write=partial(write_each, lambda sample: encode(data_of(sample))),
    ending=".rec",
    holds="data",
)
