"""TFRecord, TensorFlow's record format, with both checksums checked.

A record is its length (8 bytes, little endian), a masked CRC32C of the length, the payload and a masked CRC32C of the
payload. Files may be gzip-compressed, in several members. TensorFlow ends quietly where a file is cut inside of a
length, and other readers check nothing; here both are errors that name the offset.

A sample is a record's payload (`data`); most hold a `tf.train.Example`, which `example.py` decodes. The checksums
need the package crc32c: in Python they would take a hundred times as long as reading.

Source: TensorFlow's `lib/io/record_writer.h` and its guide, "TFRecord and tf.train.Example".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial

from sagemaker_channels.errors import foreign
from sagemaker_channels.formats.cursor import OTHER, Cursor, go_to
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.window import CHUNK, Window, max_sample_bytes, too_large
from sagemaker_channels.formats.writing import data_of, write_each
from sagemaker_channels.sample import DATA, KEY, ByteStream, Sample, sample_of

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_KNOWN = 1 << 12  # headers that are remembered
_corrupt = partial(foreign, "TFRecord")


def _read(stream: ByteStream, key: str | None, cursor: Cursor) -> Iterator[Sample]:
    """Yield the samples of an uncompressed stream; positions are bytes."""
    crc32c = crc32c_function()
    go_to(stream, cursor.start, key)
    left, others = cursor.turns[0], cursor.turns[1] - 1  # `left` records are not needed, before the next one that is
    window = Window(stream, cursor.start)
    unpack, unpack_footer = _HEADER.unpack_from, _FOOTER.unpack_from
    known: set[tuple[int, int]] = set()  # headers whose checksum was right: lengths repeat
    while True:
        # Whole records in the window: nearly all of them, so without a call for each.
        view, place, end = window.view, window.position, window.end
        while place + 12 <= end:
            header = unpack(view, place)
            if header not in known:
                if masked(crc32c(view[place : place + 8])) != header[1]:
                    break
                if len(known) == _KNOWN:
                    known.clear()
                known.add(header)
            stop = place + 12 + header[0]
            if stop + 4 > end:
                break
            if left:
                left -= 1
                window.position = place = stop + 4
                cursor.position = window.before + place
                yield OTHER
                continue
            piece = view[place + 12 : stop]
            crc = crc32c(piece)
            if unpack_footer(view, stop)[0] != ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF:
                break
            window.position = place = stop + 4
            cursor.position = window.before + place
            left = others
            data = piece.tobytes()  # faster than bytes()
            yield {DATA: data} if key is None else {KEY: key, DATA: data}
        # One record that spans windows or is damaged.
        offset = window.offset
        whole = _take(window, key, skips=left > 0)
        cursor.position = window.offset
        if whole is None:
            return
        payload, checksum = whole
        if not left and masked(crc32c(payload)) != checksum:
            cursor.skip(_corrupt(key, offset, "the checksum of the payload is wrong"))
            continue
        yield OTHER if left else sample_of(payload, key)
        left = left - 1 if left else others


def _take(window: Window, key: str | None, *, skips: bool) -> tuple[bytes, int] | None:
    """Return the next record's payload, nothing of it if it `skips` it, and its checksum; None at the stream's end."""
    offset = window.offset
    header = window.take(12)
    if not header:
        return None
    if len(header) < 12:
        raise _corrupt(key, offset, f"the stream ends {12 - len(header)} bytes before the end of a record's header")
    length, checksum = _HEADER.unpack(header)
    if masked(crc32c_function()(header[:8])) != checksum:
        raise _corrupt(key, offset, "the checksum of the length is wrong")
    if length > CHUNK and length > (most := max_sample_bytes()):
        raise too_large(key, offset, f"a record of {length:,} bytes", most)
    payload = b"" if skips else window.take(length)
    skipped = window.skip(length) if skips else 0
    footer = window.take(4)
    missing = length + 4 - len(payload) - skipped - len(footer)
    if missing:
        raise _corrupt(key, offset, f"the stream ends {missing} bytes before the end of this record")
    return payload, _FOOTER.unpack(footer)[0]


def encode(record: bytes) -> list[bytes]:
    """Return the pieces of one record. Raises ImportError if the package crc32c is not installed."""
    length = _LENGTH.pack(len(record))
    crc32c = crc32c_function()
    return [length, _FOOTER.pack(masked(crc32c(length))), record, _FOOTER.pack(masked(crc32c(record)))]


def masked(crc: int) -> int:
    """Return a CRC as it is stored: rotated and offset, since CRCs of data that holds CRCs are weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _begins(head: bytes) -> bool:
    """Return whether a record begins here, also without the package: the launcher asks about the objects of a prefix."""
    try:
        crc = crc32c_function()(head[:8])
    except ImportError:
        crc = _of_few_bytes(head[:8])
    return len(head) >= 12 and masked(crc) == _HEADER.unpack_from(head)[1]


def _of_few_bytes(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def crc32c_function() -> Callable[[bytes | memoryview], int]:
    """Return the function. Raises ImportError, with what to install, if the package is not installed."""
    try:
        from crc32c import crc32c
    except ImportError as error:
        raise ImportError(
            "TFRecord's checksums need crc32c: pip install 'sagemaker-launch[formats]', or crc32c"
        ) from error
    return crc32c


FORMAT = Format(
    name="tfrecord",
    content_types=("application/x-tfrecord",),
    sample="a record's bytes in `data`; both checksums are verified",
    # A record of 35,615 bytes begins like gzip, except for the checksum.
    read=_read,
    begins=_begins,
    write=partial(write_each, lambda sample: encode(data_of(sample))),
    ending=".tfrecord",
    holds="data",
    after_damage="the next record; after a damaged length, the next object",
)
