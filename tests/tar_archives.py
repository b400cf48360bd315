"""Tar archives as tarfile and our writer make them, and how the tests read them."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterable

from sagemaker_channels.formats import tar
from sagemaker_channels.sample import Sample

BLOCK = 512


FILES = [
    ("a/1.jpg", b"\xff" * 700),
    ("a/1.cls", b"3"),
    ("a/2.jpg", b""),
    ("b.seg.png", bytes(512)),
    ("b.txt", b"x" * 513),
]


SAMPLES = [
    {"__key__": "a/1", "jpg": b"\xff" * 700, "cls": b"3"},
    {"__key__": "a/2", "jpg": b""},
    {"__key__": "b", "seg.png": bytes(512), "txt": b"x" * 513},
]


class Dribble(io.BytesIO):
    """A stream that gives a few bytes at a time, as a pipe may."""

    def __init__(self, data: bytes, seed: int = 0) -> None:
        super().__init__(data)
        self.random = random.Random(seed)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return super().readinto(buffer[: self.random.choice((1, 7, 511, 512, 513, 5000))])


def archive(files: Iterable[tuple[str, bytes]], form: int = tarfile.USTAR_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as output:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            output.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def timed_archive(count: int) -> bytes:
    """An archive whose members follow extended headers with nothing but their times, as in webdataset's."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as output:
        for number in range(count):
            info = tarfile.TarInfo(f"{number:03d}.bin")
            info.size, info.mtime = 700, 1_700_000_000.25 + number + number % 2 / 8  # of 2 or 3 digits
            output.addfile(info, io.BytesIO(bytes([number]) * 700))
    return stream.getvalue()


def written(samples: Iterable[Sample]) -> bytes:
    stream = io.BytesIO()
    tar.write(stream, samples)
    return stream.getvalue()


def read(data: bytes) -> list[Sample]:
    return list(tar.FORMAT.split(io.BytesIO(data), "shard.tar"))


def patched(data: bytes, offset: int, field: bytes) -> bytes:
    """An archive with some header bytes replaced and the first header's checksum made right again."""
    data = data[:offset] + field + data[offset + len(field) :]
    blank = data[:148] + b" " * 8 + data[156:BLOCK]
    return data[:148] + b"%06o\0 " % sum(blank) + data[156:]
