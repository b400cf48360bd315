"""The position of a reader in an object, for resuming in its middle.

A caller that may resume later passes a Cursor to a format's `split`. Before each sample, the format sets `position` to that of
the next one, and `split(the same object, key, Cursor(that position))` resumes there, without repeating or losing a sample.

Each format decides what the number counts: bytes of the stream for most. 0 is the beginning in all of them. Callers must not
compute with it: tar and TFRecord, for example, use negative numbers for a position that a reader cannot seek to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sagemaker_channels.errors import CorruptError, corrupt
from sagemaker_channels.formats.window import CHUNK
from sagemaker_channels.sample import Sample

OTHER: Sample = {}  # in place of a sample that is not needed


class Cursor:
    """The position to start at, `start`, and before each sample that of the next one, `position`.

    `skips` is called with each damage after which the format knows the next record, and raises an error if there is too much.
    `turns` is (i, n) if only every n-th sample from the i-th on is needed. A format may then yield OTHER in place of the rest,
    without copying or checking them.
    """

    __slots__ = ("position", "skips", "start", "turns")

    def __init__(
        self,
        start: int = 0,
        skips: Callable[[CorruptError], None] | None = None,
        turns: tuple[int, int] = (0, 1),
    ) -> None:
        self.start = start
        self.position = start
        self.skips = skips
        self.turns = turns

    def skip(self, error: CorruptError) -> None:
        """Return if reading may continue after this damage; otherwise raise the error."""
        try:
            if self.skips is None:
                raise error from error.__cause__
            self.skips(error)
        finally:
            del error  # Its traceback may have this frame: that circle would keep a failed loop's dataset.


def is_seekable(stream: Any) -> bool:
    return hasattr(stream, "seekable") and bool(stream.seekable())


def go_to(stream: Any, start: int, key: str | None) -> None:
    """Skip the first `start` bytes of a stream at its beginning: by seeking if it can, else by reading.

    Raises CorruptError if the stream is shorter, so it is not the one that the position belongs to.
    """
    if start <= 0:
        return
    missing = start
    if is_seekable(stream):
        # Seeking beyond a file's end is not an error, so the last of these bytes is read.
        stream.seek(start - 1)
        missing = 1
    scratch = memoryview(bytearray(min(missing, CHUNK)))
    while missing and (count := stream.readinto(scratch[:missing])):
        missing -= count
    if missing:
        raise corrupt(
            key,
            start,
            "reading should resume here, but the object is shorter: it is not the one that was read before; start the epoch again",
        )
