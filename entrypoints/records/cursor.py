"""Where reading begins and how far it has come: what it takes to go on in the middle of an object.

A caller that wants to go on later hands a Cursor to a format's `split`. Before each sample the format writes down where the
next one begins, and `split(the same object, key, Cursor(that position))` goes on with it: no sample again, none left out.

What the number counts is each format's own affair: bytes of the stream for most. 0 is the beginning of all. Nobody else
should reckon with it: tar and TFRecord, for one, write down negative numbers where a place cannot be sought.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from entrypoints.errors import corrupt
from entrypoints.records.window import CHUNK
from entrypoints.sample import ByteStream


class Cursor:
    """`start` is where to begin, as a cursor's position said earlier; `position`, before each sample, where the next begins."""

    __slots__ = ("position", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.position = start


@runtime_checkable
class Seekable(Protocol):
    """A stream that may be sought; it says itself whether it can."""

    def seekable(self) -> bool: ...

    def seek(self, offset: int, /) -> int: ...


def go_to(stream: ByteStream, start: int, key: str | None) -> None:
    """Leaves out the first `start` bytes of a stream that stands at its beginning: by seeking where it can, else by reading.

    Raises CorruptError where the stream is shorter: it is not the one that the position was noted for.
    """
    if start <= 0:
        return
    missing = start
    if isinstance(stream, Seekable) and stream.seekable():
        # Files let one seek beyond their end, so the last of the bytes to leave out is read.
        stream.seek(start - 1)
        missing = 1
    scratch = memoryview(bytearray(min(missing, CHUNK)))
    while missing and (count := stream.readinto(scratch[:missing])):
        missing -= count
    if missing:
        raise corrupt(
            key,
            start,
            "reading should go on here, but the object is shorter: it is not the one that was read before; begin the epoch anew",
        )
