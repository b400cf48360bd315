"""Byte streams, which readers open and formats read, and samples.

A sample is a plain dict, so that transforms and collate functions need no class of ours:

    {"data": b"...", "__key__": "a/1.png"}                 a whole object; a line or a record, with its object's key
    {"jpg": b"...", "cls": b"3", "__key__": "a/1"}         a tar's group: one field per extension

Samples of a Pipe have no `__key__`, except those of a tar.
"""

from __future__ import annotations

from typing import Any, Protocol

KEY = "__key__"
DATA = "data"

Sample = dict[str, Any]  # field -> bytes, and KEY -> str; a transform may return anything


class ByteStream(Protocol):
    """The part of a raw binary file that readers implement and formats use."""

    def read(self, size: int = -1, /) -> bytes:
        """Return between 1 and `size` available bytes, or all remaining ones if `size` is -1; none only at the end."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Read available bytes into the buffer and return their number, which is 0 only at the end."""

    def close(self) -> None:
        """Close the stream, at any position."""


def sample_of(data: bytes, key: str | None) -> Sample:
    """Return the sample whose only field is `data`: a whole object, a record or a line."""
    return {DATA: data} if key is None else {KEY: key, DATA: data}


def weight(sample: Sample) -> int:
    """Return about how many bytes a sample takes."""
    return sum(map(_bytes, sample.values()))


def _bytes(field: Any) -> int:
    """Return the size of a field: bytes, an array, or a dict or tuple of these; other values are small."""
    if isinstance(field, bytes):
        return len(field)
    if isinstance(field, (dict, tuple)):
        return sum(map(_bytes, field.values() if isinstance(field, dict) else field))
    return int(getattr(field, "nbytes", 0))
