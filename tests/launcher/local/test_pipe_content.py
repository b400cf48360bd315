"""Unzipping, wrapping and joining, without a store or a pipe."""

from __future__ import annotations

import gzip
import os
import random
import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.errors import RefusedError
from launcher.local.channels.pipe_content import as_record, gunzip, joined
from launcher.s3.reading import CHUNK, Stream
from sagemaker_channels.formats.recordio import MAGIC_BYTES as MAGIC


def stream(data: bytes, size: int = CHUNK) -> Stream:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def parse_records(data: bytes) -> Iterator[bytes]:
    """MXNet's rules, written once more: by length, and the magic word put back between parts."""
    parts: list[bytes] = []
    while data:
        magic, word = struct.unpack_from("<4sI", data)
        assert magic == MAGIC
        flag, length = word >> 29, word & (1 << 29) - 1
        parts.append(data[8 : 8 + length])
        assert len(parts[-1]) == length
        assert not any(data[8 + length : 8 + (length + 3) // 4 * 4])
        assert flag in ((0, 1) if len(parts) == 1 else (2, 3))
        data = data[8 + (length + 3) // 4 * 4 :]
        if flag in (0, 3):
            yield MAGIC.join(parts)
            parts = []
    assert not parts


def wrapped(data: bytes, size: int = CHUNK) -> bytes:
    return b"".join(as_record(stream(data, size), "x"))


PIECES = st.lists(st.one_of(st.just(MAGIC), st.binary(max_size=6)), max_size=8).map(b"".join)


@given(payloads=st.lists(PIECES, max_size=4), size=st.integers(1, 9))
@example(payloads=[b"", MAGIC, MAGIC * 2, b"abc" + MAGIC, MAGIC + b"abc", b"abcd" + MAGIC + b"e"], size=3)
def test_records_are_read_back_and_contain_no_false_magic(payloads: list[bytes], size: int) -> None:
    records = [wrapped(payload, size) for payload in payloads]
    assert list(parse_records(b"".join(records))) == payloads
    for record, payload in zip(records, payloads, strict=True):
        aligned = sum(record[start : start + 4] == MAGIC for start in range(0, len(record), 4))
        inside = sum(payload[start : start + 4] == MAGIC for start in range(0, len(payload), 4))
        assert aligned == inside + 1


def test_long_record_with_a_magic_word_at_a_chunk_boundary_is_split() -> None:
    payload = random.Random(0).randbytes(CHUNK - 4) + MAGIC + random.Random(1).randbytes(5 * CHUNK) + MAGIC + b"end"
    assert list(parse_records(wrapped(payload, 70_001))) == [payload]


def test_record_of_two_to_the_29_bytes_is_refused() -> None:
    block = bytes(16 << 20)
    chunks: Stream = (block for _ in range(32))
    with pytest.raises(RefusedError, match="s3://b/k: 536870912 bytes or more do not fit into a RecordIO record"):
        next(as_record(chunks, "s3://b/k"))


@pytest.mark.parametrize("size", [1, 7, CHUNK])
@pytest.mark.parametrize(
    ("zipped", "plain"),
    [
        (gzip.compress(b"abc" * 1000), b"abc" * 1000),
        (gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two"), b"onetwo"),
        (gzip.compress(b"padded") + bytes(100), b"padded"),
        (b"", b""),
    ],
    ids=["one", "three members", "padded", "empty object"],
)
def test_gunzip_unzips_any_number_of_members(zipped: bytes, plain: bytes, size: int) -> None:
    assert b"".join(gunzip(stream(zipped, size), "x")) == plain


def test_gunzip_of_huge_content_uses_little_memory() -> None:
    zipped = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    total = sum(len(chunk) for chunk in gunzip(stream(zipped), "x"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 64 << 20
    assert peak < 4 << 20


DAMAGED = gzip.compress(os.urandom(1000))
DAMAGED = DAMAGED[:500] + bytes([DAMAGED[500] ^ 1]) + DAMAGED[501:]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"plain text", "not readable as gzip"),
        (DAMAGED, "not readable as gzip"),
        (gzip.compress(b"abc" * 99)[:-5], "ends in the middle"),
        (gzip.compress(b"a") + b"\x1f", "not readable as gzip"),
        (gzip.compress(b"a") + b"rubbish", "not readable as gzip"),
    ],
    ids=["plain", "damaged", "cut", "cut second member", "rubbish behind"],
)
def test_damaged_gzip_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(RefusedError, match=f"s3://b/k: {message}"):
        list(gunzip(stream(data), "s3://b/k"))


def test_small_chunks_are_joined_in_the_order_of_streams() -> None:
    streams = (stream(bytes([number]) * (number * 3), 2) for number in range(20))
    assert list(joined(streams)) == [b"".join(bytes([number]) * (number * 3) for number in range(20))]


def test_error_of_a_stream_is_raised_after_the_bytes_before_it() -> None:
    def failing() -> Stream:
        yield b"half"
        raise RefusedError("gone")

    chunks = joined(iter([stream(b"whole"), failing(), stream(b"never")]))
    assert next(chunks) == b"wholehalf"
    with pytest.raises(RefusedError, match="gone"):
        next(chunks)
