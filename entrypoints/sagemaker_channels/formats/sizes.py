"""The limit of a sample's size, and the approximate size of a sample.

A damaged length, a quote that is not closed or a small object that unpacks to gigabytes must not use all memory. So a format
refuses a sample beyond a limit before it has read more than that. Whole objects (`objects`) have no limit: their size is known.
"""

from __future__ import annotations

import os
from typing import Any

from sagemaker_channels.contract import MAX_SAMPLE_VARIABLE
from sagemaker_channels.errors import ChannelError, CorruptError, corrupt
from sagemaker_channels.formats.window import CHUNK

MAX_TEXT_BYTES = 64 << 20  # a line or a row, whose length is unknown until its end
MAX_SAMPLE_BYTES = 1 << 30  # in the other formats


def max_sample_bytes(default: int = MAX_SAMPLE_BYTES) -> int:
    """Return the limit in bytes: that of the environment, else the default.

    Raises:
        ChannelError: The variable is not a number of bytes, or is less than formats read at a time.
    """
    text = os.environ.get(MAX_SAMPLE_VARIABLE)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text) >= CHUNK):
        raise ChannelError(f"{MAX_SAMPLE_VARIABLE} is {text!r}; write a whole number of bytes, {CHUNK:,} or more")
    return int(text)


def too_large(key: str | None, offset: int, what: str, most: int) -> CorruptError:
    """Return the error of a sample beyond the limit `most`; `what` states its size."""
    remedy = f"if it is not damaged, set {MAX_SAMPLE_VARIABLE} to more bytes"
    return corrupt(key, offset, f"{what}, and a sample may have {most:,}; {remedy}")


def size_of(value: Any) -> int:
    """Return about how many bytes a field or a sample takes when it is written: one for a character, 8 for a number."""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    size = getattr(value, "nbytes", 8)
    return size if isinstance(size, int) else 8
