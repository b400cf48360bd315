"""A buffered window on a stream: large reads from it, exact pieces for the formats.

Formats need headers and payloads of known length. Reading them one by one costs a system call each; reading chunks into
new bytes objects costs a page fault for every 4 KiB, which is slower than copying. So the stream is read
into one buffer, which is reused, and pieces are copied out of it; what is missing of a large piece is read into its own memory.
A stream whose bytes are in memory lends them instead (`lend`): they are in the view until the window reads more.
Formats with many small records read `view` between `position` and `end` directly, which saves a call per record.
"""

from __future__ import annotations

import os
from io import BytesIO

from sagemaker_channels.contract import MAX_SAMPLE_VARIABLE
from sagemaker_channels.errors import ChannelError, CorruptError, corrupt
from sagemaker_channels.sample import ByteStream

CHUNK = 1 << 20  # bytes: the largest pipe buffer without privileges, and small enough for the CPU's cache
_DIRECT = CHUNK >> 2  # bytes of a piece that are missing from the window: so many or more are not copied through it
MAX_TEXT_BYTES = 64 << 20  # a line or a row, whose length is unknown until its end
MAX_SAMPLE_BYTES = 1 << 30  # in the other formats


class Window:
    """The rest of a stream. `view[position:end]` has been read but not taken yet; any call may replace the view."""

    def __init__(self, stream: ByteStream, before: int = 0) -> None:
        self.view = self._own = memoryview(bytearray(CHUNK))
        self._lend = getattr(stream, "lend", None)
        self.position = 0
        self.end = 0
        self.before = before  # bytes of the stream before the view's
        self._stream = stream

    @property
    def offset(self) -> int:
        """The number of bytes taken from the stream."""
        return self.before + self.position

    def refill(self) -> bool:
        """Read the next chunk over this one, which must be used up; return False at the stream's end."""
        self.before += self.end
        self.position = 0
        if self._lend is None:
            self.end = self._stream.readinto(self.view)
        else:
            self.view = self._lend(CHUNK)
            self.end = len(self.view)
        return self.end > 0

    def extend(self) -> None:
        """Move the rest to the front and read more after it, so that a record that spans two chunks is in one piece."""
        rest = self.end - self.position
        self._own[:rest] = self.view[self.position : self.end]
        self.view = self._own
        self.before += self.position
        self.position = 0
        self.end = rest + self._stream.readinto(self.view[rest:])

    def take(self, size: int, padding: int = 0) -> bytes:
        """Take the next `size` bytes and skip `padding` more; fewer at the stream's end, as `offset` then shows."""
        start = self.position
        end = start + size
        if end + padding <= self.end:
            self.position = end + padding
            return self.view[start:end].tobytes()  # faster than bytes()
        whole, held = BytesIO(bytes(size)), 0  # It returns its bytes without copying them.
        with whole.getbuffer() as buffer:
            while True:
                count = min(size - held, self.end - self.position)
                buffer[held : held + count] = self.view[self.position : self.position + count]
                self.position += count
                held += count
                if size - held >= _DIRECT and (count := self._stream.readinto(buffer[held:])):
                    self.before += count
                    held += count
                elif held == size or not self.refill():
                    break
        self.skip(padding)
        return whole.getvalue()[:held]

    def skip(self, size: int) -> int:
        """Skip so many bytes; return how many there were."""
        missing = size
        while True:
            step = min(missing, self.end - self.position)
            self.position += step
            missing -= step
            if missing == 0 or not self.refill():
                return size - missing


def max_sample_bytes(default: int = MAX_SAMPLE_BYTES) -> int:
    """Return the limit of a sample's bytes: that of the environment, else the default.

    A damaged length, a quote that is not closed or a small object that unpacks to gigabytes must not use all memory. So a format
    refuses a sample beyond the limit before it has read more than that. Whole objects have no limit: their size is known.
    Raises ChannelError if the variable is not a number of bytes, or is less than formats read at a time.
    """
    text = os.environ.get(MAX_SAMPLE_VARIABLE)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text) >= CHUNK):
        raise ChannelError(
            f"{MAX_SAMPLE_VARIABLE} is {text!r}", remedy=f"write a whole number of bytes, {CHUNK:,} or more"
        )
    return int(text)


def too_large(key: str | None, offset: int, what: str, most: int) -> CorruptError:
    """Return the error of a sample beyond the limit `most`; `what` states its size."""
    remedy = f"if it is not damaged, set {MAX_SAMPLE_VARIABLE} to more bytes"
    return corrupt(key, offset, f"{what}, and a sample may have {most:,}; {remedy}")
