"""How big a sample is, about: to cut what is written into pieces of a size."""

from __future__ import annotations

from typing import Any


def size_of(value: Any) -> int:
    """Bytes that a field or a sample takes when it is written, about: texts by their letters, a number as 8."""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    size = getattr(value, "nbytes", 8)
    return size if isinstance(size, int) else 8
