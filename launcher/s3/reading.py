"""The bytes of an object as a stream of chunks, and as a file."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from io import BufferedReader, RawIOBase
from typing import Any

Stream = Generator[bytes, None, None]  # closing it early closes the connection
CHUNK = 1 << 19  # bytes; large enough that Python's cost per chunk does not show, small enough to hold several


def as_file(chunks: Iterator[bytes]) -> BufferedReader:
    return BufferedReader(_Raw(chunks), CHUNK)


class _Raw(RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or memoryview(next(filter(None, self._chunks), b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
