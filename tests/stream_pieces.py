"""A stream that arrives in small pieces."""

from __future__ import annotations

import io


class Pieces(io.BytesIO):
    """A stream that gives at most `size` bytes at a time."""

    def __init__(self, data: bytes, size: int, seekable: bool = True) -> None:
        super().__init__(data)
        self.size, self.can_seek = size, seekable

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.size)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return super().readinto(buffer[: self.size])

    def seekable(self) -> bool:
        return self.can_seek
