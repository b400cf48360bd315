"""What passes from readers to formats to training: byte streams and samples.

A sample is a plain dict, so that transforms, collate functions and other people's code need nothing of ours:

    {"data": b"...", "__key__": "a/1.png"}                 a whole object; a line or a record, with its object's key
    {"jpg": b"...", "cls": b"3", "__key__": "a/1"}         a tar's group: one field per extension

`__key__` is there where the way of arriving knows it: a Pipe carries no keys, except those inside of a tar.
"""

from __future__ import annotations

from typing import Any, Protocol

KEY = "__key__"
DATA = "data"

Sample = dict[str, Any]  # field -> bytes, and KEY -> str; a transform may put in what it likes


class ByteStream(Protocol):
    """The part of a raw binary file that readers give and formats use."""

    def read(self, size: int = -1, /) -> bytes:
        """Between 1 and `size` bytes, as they are at hand; all that remain where `size` is -1; empty at the end only."""
        ...

    def readinto(self, buffer: memoryview, /) -> int:
        """Puts bytes into the buffer, as many as are at hand and fit; how many, 0 at the end only."""
        ...

    def close(self) -> None:
        """Gives the stream's source back; at any place, not only at the end."""
        ...


def whole_object(data: bytes, key: str | None) -> Sample:
    """The sample of one undivided piece of bytes."""
    return {DATA: data} if key is None else {KEY: key, DATA: data}


def weight(sample: Sample) -> int:
    """About how many bytes a sample takes."""
    return sum(map(_bytes, sample.values()))


def _bytes(field: Any) -> int:
    """What a field weighs: bytes, an array, or several of them in a dict or a tuple; whatever else there is weighs little."""
    if isinstance(field, bytes):
        return len(field)
    if isinstance(field, (dict, tuple)):
        return sum(map(_bytes, field.values() if isinstance(field, dict) else field))
    return int(getattr(field, "nbytes", 0))
