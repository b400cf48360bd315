"""What is fetched when: the bookkeeping of prefetch.py, without its threads. Its lock guards all of it.

A piece is asked for only after all before it have been, so what is read next never waits behind what is read later. Bytes
are counted from when they are asked for until they are read.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Fetchable(Protocol):
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
    whole_bytes: int = 0  # an object up to this size is one request in any case
    objects: int = 512  # known and not read yet
    threads: int = 64  # requests at the same time


class Slot:
    """One object between its fetches and its reading."""

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
        "window",
    )

    def __init__(self, source: Fetchable) -> None:
        self.source = source
        self.end = source.size
        self.issued = 0  # up to which byte it has been asked for
        self.place = 0  # the byte that is read next
        self.pieces: dict[int, bytes | Exception] = {}  # by the byte they start at
        self.held = 0  # bytes of pieces, and of those to come
        self.busy = 0  # fetches under way
        self.generation = 0  # of the fetches whose pieces are wanted
        self.window: int | None = None  # bytes that may be held of it, after a seek: it may be the first of many
        self.given = False  # to the reader
        self.failed = False  # nothing after the failure is asked for
        self.closed = False

    def wants_more(self) -> bool:
        """Whether something is left to ask for; an empty object is asked for too: it can be gone."""
        return not (self.closed or self.failed) and (self.end is None or self.issued < max(self.end, 1))

    def at_end(self) -> bool:
        """Whether there is nothing more to read."""
        return self.end is not None and self.place >= self.end and self.issued > 0


class Fetch(NamedTuple):
    """One fetch."""

    slot: Slot
    generation: int
    start: int
    size: int  # bytes asked for


class Schedule:
    """Which fetch of which object is next, and whether there is room for it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0  # bytes, of all slots
        self._unissued: deque[Slot] = deque()  # those that want more, in order
        self.waiting: deque[Slot] = deque()  # those that the reader has not been given

    def add(self, source: Fetchable) -> None:
        """A further object, after all others."""
        slot = Slot(source)
        self.waiting.append(slot)
        self._unissued.append(slot)

    def has_room(self) -> bool:
        """Whether a further object may be added."""
        return len(self.waiting) < self._limits.objects and self._held < self._limits.held_bytes

    def all_issued(self) -> bool:
        """Whether everything that was added has been asked for."""
        return not self._unissued

    def next_fetch(self) -> Fetch | None:
        """What to fetch now, and notes that it is; None where there is nothing, or no room."""
        limits = self._limits
        for slot in self._unissued:
            if (slot.busy and not slot.source.ranges) or (slot.window is not None and slot.held >= slot.window):
                continue
            count = self._next_size(slot)
            # The one that is being read goes on in any case: the others must not starve it.
            starved = slot.given and slot.held < 2 * limits.piece_bytes
            if self._held and self._held + count > limits.held_bytes and not starved:
                return None
            fetch = Fetch(slot, slot.generation, slot.issued, count)
            slot.issued += max(count, 1)
            slot.busy += 1
            self._hold(slot, count)
            self._settle(slot)
            return fetch
        return None

    def _next_size(self, slot: Slot) -> int:
        if slot.end is None:
            return self._limits.piece_bytes
        if slot.issued == 0 and slot.end <= self._limits.whole_bytes:
            return slot.end
        return min(self._limits.piece_bytes, slot.end - slot.issued)

    def put(self, fetch: Fetch, piece: bytes | Exception) -> None:
        """What a fetch has brought."""
        slot, generation, start, count = fetch
        slot.busy -= 1
        if slot.generation != generation:  # sought away from, or closed
            if slot.closed and not slot.busy:
                slot.source.close()
            return
        if isinstance(piece, Exception):
            slot.failed = True
            self._hold(slot, -count)
        else:
            self._hold(slot, len(piece) - count)
            if len(piece) < count:
                slot.end = start + len(piece)
        self._settle(slot)
        slot.pieces[start] = piece

    def take(self, slot: Slot) -> bytes:
        """The piece at the slot's place, empty where there is none yet. Raises what its fetch raised, every time."""
        piece = slot.pieces.get(slot.place, b"")
        if isinstance(piece, Exception):
            raise piece
        if piece:
            del slot.pieces[slot.place]
            slot.place += len(piece)
            self._hold(slot, -len(piece))
            if slot.window is not None:
                slot.window = 2 * slot.window if slot.window < self._limits.held_bytes else None
        return piece

    def seek(self, slot: Slot, place: int, size: int) -> None:
        """Lets a slot of `size` bytes be read from `place` on; what has been fetched for other places is dropped."""
        self._forget(slot)
        slot.end = size
        slot.window = self._limits.piece_bytes
        slot.failed = False
        slot.issued = slot.place = place
        if slot not in self._unissued and slot.wants_more():
            self._unissued.appendleft(slot)

    def drop(self, slot: Slot) -> None:
        """Ends a slot."""
        if not slot.closed:
            slot.closed = True
            self._forget(slot)
            self._settle(slot)
            if not slot.busy:
                slot.source.close()

    def drop_all(self) -> None:
        """Ends what has not been given, and what has not been asked for."""
        for slot in (*self.waiting, *self._unissued):
            self.drop(slot)
        self.waiting.clear()

    def _hold(self, slot: Slot, count: int) -> None:
        slot.held += count
        self._held += count

    def _forget(self, slot: Slot) -> None:
        slot.generation += 1
        slot.pieces.clear()
        self._hold(slot, -slot.held)

    def _settle(self, slot: Slot) -> None:
        if not slot.wants_more():
            with suppress(ValueError):
                self._unissued.remove(slot)
