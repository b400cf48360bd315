"""Samples that are too large, by damage or on purpose, are refused before they take much memory."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import format_of, recordio, tar, tfrecord
from sagemaker_channels.formats.window import CHUNK

MOST = 2 << 20
LARGE = 48 << 20  # in a test's object; what a format holds must be far less


class Repeated(io.RawIOBase):
    """A beginning, and then a block again and again, `size` bytes in all, none of which are held."""

    def __init__(self, beginning: bytes, block: bytes = b"x" * CHUNK, size: int = LARGE) -> None:
        self._beginning, self._block, self._left = beginning, block, size

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = (self._beginning or self._block)[: min(len(buffer), self._left)]
        self._beginning = self._beginning[len(data) :]
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.x", data)
    return stream.getvalue()


def tarred(*sizes: int) -> bytes:
    stream = io.BytesIO()
    tar.write(stream, [{"__key__": "a", **{f"x{number}": bytes(size) for number, size in enumerate(sizes)}}])
    return stream.getvalue()


def in_parts() -> bytes:
    """A RecordIO record of parts of 1 MiB."""
    part = bytes(CHUNK)
    flags = [1, *[2] * (LARGE // CHUNK), 3]
    return b"".join(struct.pack("<II", recordio.MAGIC, flag << 29 | CHUNK) + part for flag in flags)


def tfrecord_of(length: int) -> bytes:
    header = struct.pack("<Q", length)
    return header + struct.pack("<I", tfrecord.masked(tfrecord.crc32c_function()(header)))


GOOD = b"good,1\r\n"
TOO_LARGE: dict[str, tuple[str, Callable[[], io.RawIOBase | io.BytesIO], str]] = {
    "one line": ("lines", lambda: Repeated(b"good\n"), "byte 5: a line that begins here"),
    "one line of JSON": ("jsonl", lambda: Repeated(b'{"a": 1}\n{"a": "'), "byte 9: a line that begins here"),
    "one row": ("csv", lambda: Repeated(GOOD), "byte 8: a line that begins here"),
    "open quote": (
        "csv",
        lambda: Repeated(GOOD + b'"', b"a, b" * 1000 + b"\n"),
        r"byte 8: a row .*\(is a quote not closed\?\)",
    ),
    "gzip of one line": ("lines", lambda: io.BytesIO(gzip.compress(bytes(LARGE))), "byte 0: a line that begins here"),
    "deflated member": ("zip", lambda: io.BytesIO(zipped(bytes(LARGE))), "byte 0: member 'a.x0?' has 50,331,648"),
    "tar member": ("tar", lambda: io.BytesIO(gzip.compress(tarred(LARGE), 1)), "byte 0: member 'a.x0' has 50,331,648"),
    "tar group": ("tar", lambda: io.BytesIO(tarred(CHUNK, CHUNK, 1)), "byte 2098176: sample 'a' has 2,097,153 bytes"),
    "record": (
        "recordio",
        lambda: Repeated(struct.pack("<II", recordio.MAGIC, LARGE)),
        "byte 0: a record of 50,331,648 bytes",
    ),
    "record in parts": ("recordio", lambda: io.BytesIO(in_parts()), "byte 2097168: a record of 3,145,728 bytes"),
    "TFRecord": ("tfrecord", lambda: Repeated(tfrecord_of(LARGE)), "byte 0: a record of 50,331,648 bytes"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_too_large_sample_is_refused_in_little_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.MAX_SAMPLE_VARIABLE, str(MOST))
    form, make, place = TOO_LARGE[name]
    stream = make()
    tracemalloc.start()
    with pytest.raises(CorruptError) as refused:
        list(format_of(form).split(stream, "o"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    refused.match(
        rf"^object 'o', {place}.* a sample may have 2,097,152; .* set LAUNCHER_MAX_SAMPLE_BYTES to more bytes$"
    )
    assert peak < 12 * MOST  # csv's own buffer has four bytes a character, and grows by doubling


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("lines", b"x" * (MOST - 1) + b"\n"),
        ("csv", b'"' + b"a\n" * (MOST // 2 - 4) + b'",b\n'),
        ("zip", zipped(bytes(MOST))),
        ("tar", tarred(CHUNK, CHUNK)),
        ("recordio", b"".join(recordio.encode(bytes(MOST)))),
        ("objects", bytes(2 * MOST)),  # its size is known, and it is the user's
    ],
)
def test_sample_at_the_limit_is_read(form: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.MAX_SAMPLE_VARIABLE, str(MOST))
    assert len(list(format_of(form).split(io.BytesIO(data), "o"))) == 1


def test_samples_before_one_that_is_too_large_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.MAX_SAMPLE_VARIABLE, str(MOST))
    tar.write(stream := io.BytesIO(), [{"__key__": "a", "x": b"good"}, {"__key__": "b", "x": bytes(MOST + 1)}])
    stream.seek(0)
    samples = format_of("tar").split(stream, "o")
    assert next(samples) == {"__key__": "a", "x": b"good"}
    with pytest.raises(CorruptError, match=r"member 'b\.x' has 2,097,153 bytes"):
        next(samples)


@pytest.mark.parametrize("value", ["1 GB", "-1", "1048575", "1e9"])
def test_limit_that_is_not_a_number_of_bytes_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.MAX_SAMPLE_VARIABLE, value)
    with pytest.raises(
        ChannelError, match=rf"LAUNCHER_MAX_SAMPLE_BYTES is '{value}'; write a whole number of bytes, 1,0"
    ):
        list(format_of("lines").split(io.BytesIO(b"a\n"), "o"))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_member_of_a_zip_is_held_once(method: int) -> None:
    """4 KiB of bzip2 are unpacked at a time, so the content must not be as regular as zeros."""
    stream = io.BytesIO()
    letters = random.Random(0).randbytes(LARGE // 8).translate(bytes(range(4)) * 64)
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("a.x", letters)
    tracemalloc.start()
    (sample,) = format_of("zip").split(stream, "o")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sample["x"] == letters
    assert peak < 1.5 * len(sample["x"])
