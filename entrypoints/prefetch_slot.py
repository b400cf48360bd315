"""What the engine of prefetch.py is given, objects and limits, and what it keeps of each object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Source(Protocol):
    """One object, as the engine sees it."""

    @property
    def key(self) -> str:
        """The object's name in the channel."""
        ...

    @property
    def size(self) -> int | None:
        """Bytes; None where that shows at its end only."""
        ...

    @property
    def ranges(self) -> bool:
        """Whether several ranges of it may be fetched at the same time; such a source knows its size."""
        ...

    def fetch(self, start: int, count: int) -> bytes:
        """The `count` bytes from `start`; fewer at the end only, and only where the size is not known. In any thread."""
        ...

    def length(self) -> int:
        """The size, asked for where it is not known."""
        ...

    def close(self) -> None:
        """Gives back what the fetches keep open; called once, after the last of them."""
        ...


@dataclass(frozen=True)
class Limits:
    """How far ahead is read, per process and channel."""

    held_bytes: int = 64 << 20  # fetched or being fetched, and not read yet; exceeded by two pieces at most
    piece_bytes: int = 8 << 20  # of one request
    objects: int = 512  # known and not read yet
    threads: int = 64  # requests at the same time


class Slot:
    """One object between its fetches and its reading. All of it is guarded by the pipeline's lock."""

    __slots__ = (
        "busy",
        "closed",
        "end",
        "failed",
        "generation",
        "given",
        "held",
        "issued",
        "pieces",
        "place",
        "source",
    )

    def __init__(self, source: Source) -> None:
        self.source = source
        self.end = source.size
        self.issued = 0  # up to which byte it has been asked for
        self.place = 0  # the byte that is read next
        self.pieces: dict[int, bytes | Exception] = {}  # by the byte they start at
        self.held = 0  # bytes of pieces, and of those to come
        self.busy = 0  # fetches under way
        self.generation = 0  # of the fetches whose pieces are wanted
        self.given = False  # to the reader
        self.failed = False  # nothing after the failure is asked for
        self.closed = False

    def wants_more(self) -> bool:
        """Whether something is left to ask for; an empty object is asked for too: it can be gone."""
        return not (self.closed or self.failed) and (self.end is None or self.issued < max(self.end, 1))
