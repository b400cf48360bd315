"""The order of requests and the limits on them: prefetch.py's bookkeeping, without threads, guarded by its lock.

An object's bytes are a queue of pieces, each of which is requested, answered and read, in this order. A piece is requested only
after all earlier ones, so the piece that is read next never waits behind later ones. Bytes count against the limit from their
request until they are read.

A request that takes unusually long is repeated (pace.py). The first answer counts, and an error only if no other answer follows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from sagemaker_channels.sources.pace import Pace, pace_of

LOOK_SECONDS = 0.01  # between two looks for late requests
_MOST_TRIES = 3  # requests for one piece
# What is under way follows the store's delay, the time of its quickest answer: so many requests and bytes for each second of it,
# about three times what a process can read. With more, it waits for its own processor; with fewer, for the late answers.
_REQUESTS, _FEWEST_REQUESTS = 10_000, 8
_BYTES = 1e9


class Fetchable(ABC):
    """An object that can be fetched, whole or in pieces."""

    __slots__ = ()
    key: str  # the object's name in the channel
    size: int | None  # bytes; None if they are known only at its end
    ranges: bool  # whether several ranges may be fetched at the same time; such an object knows its size

    @abstractmethod
    def fetch(self, start: int, count: int) -> bytes:
        """Fetch `count` bytes from `start`, in any thread. Fewer mean the end of an object of unknown size."""

    def length(self) -> int:
        """Return the size, with a request if it is not known."""
        assert self.size is not None
        return self.size

    def close(self) -> None:  # noqa: B027 - not every object keeps something open
        """Close what the fetches keep open; called once, after the last of them."""


@dataclass(frozen=True)
class Limits:
    """How far to prefetch, per process and channel."""

    held_bytes: int = 64 << 20  # requested or fetched, and not read yet; exceeded by two pieces at most
    far_bytes: int = 0  # the same if the store is so far that more must be under way
    piece_bytes: int = 8 << 20  # of one request
    whole_bytes: int = 0  # Objects up to this size are fetched by one request.
    objects: int = 512  # that are known and not read yet
    threads: int = 64  # requests at the same time


@dataclass(slots=True, eq=False)
class Slot:
    """One object between its requests and its reading."""

    source: Fetchable
    end: int | None  # the object's size, once it is known
    begun: bool = False  # Something was requested.
    issued: int = 0  # the byte up to which it has been requested
    place: int = 0  # the byte that is read next
    pieces: deque[Piece] = field(default_factory=deque)  # those between, in order
    busy: int = 0  # requests under way
    window: int | None = None  # limit of the bytes between, after a seek, because more seeks may follow
    stream: Any = None  # a weak reference to the ReadStream that the reader has
    joined: bool = False  # The reader joins its pieces, which takes memory enough.
    failed: bool = False  # Nothing after the failure is requested.
    closed: bool = False

    def wants_more(self) -> bool:
        """Return whether something is left to request; an empty object is requested too, since it can be gone."""
        if self.closed or self.failed:
            return False
        return self.end is None or self.issued < self.end or not self.begun


@dataclass(slots=True, eq=False)
class Piece:
    """Bytes of an object from `start` on, requested once, or more often if they are late."""

    slot: Slot
    start: int
    size: int  # bytes that count against the limit
    begun: float  # when it was requested last, as time.monotonic() counts
    tries: int = 1
    busy: int = 1  # requests under way
    answer: bytes | Exception | None = None
    dropped: bool = False  # The reader has sought elsewhere or closed the stream.


class Schedule:
    """The next piece to request, if there is room for it."""

    def __init__(self, limits: Limits, who: str) -> None:
        self.waiting: deque[Slot] = deque()  # slots whose streams the reader does not have yet
        self._limits = limits
        self._who = who
        self._paces: dict[int, Pace] = {}  # by the number of bits of the size
        self._under_way: dict[Piece, None] = {}  # pieces without an answer, except of slots without ranges
        self._late: deque[Piece] = deque()  # to be requested again
        self._look_at = 0.0
        self._repeated = 0  # requests under way beyond the first one of a piece
        self._held = 0  # bytes
        self._unissued: deque[Slot] = deque()  # slots that want more, in order

    def add(self, source: Fetchable) -> None:
        slot = Slot(source, source.size)
        self.waiting.append(slot)
        self._unissued.append(slot)

    def has_more(self) -> bool:
        """Return whether there is something to request, perhaps without room for it."""
        return bool(self._unissued or self._late)

    def most_requests(self) -> int:
        """Return how many requests may be under way; those that wait for late answers do not count."""
        threads, delay = self._limits.threads, self._delay()
        if delay:
            threads = min(threads, max(_FEWEST_REQUESTS, int(delay * _REQUESTS)))
        return threads + self._repeated

    def _window(self, slot: Slot) -> int:
        """Return the limit of the bytes, if a slot wants more."""
        far_bytes = 0 if slot.joined else min(int(self._delay() * _BYTES), self._limits.far_bytes)
        return max(self._limits.held_bytes, far_bytes)

    def _delay(self) -> float:
        """Return how many seconds the store takes at least; 0 if that is unknown."""
        return max((pace.quickest for pace in self._paces.values()), default=0.0)

    def next_piece(self) -> Piece | None:
        """Take the next piece to request, or to request again; None if there is none, or no room for it."""
        now = time.monotonic()
        if now >= self._look_at:
            self.look()
        while self._late:
            piece = self._late.popleft()
            if piece in self._under_way:
                self._repeated += 1
                piece.busy += 1
                piece.slot.busy += 1
                return piece
        is_full = False
        for slot in self._unissued:
            held = slot.issued - slot.place
            if (slot.busy and not slot.source.ranges) or (slot.window is not None and held >= slot.window):
                continue
            size = self._next_size(slot)
            is_full = is_full or bool(self._held and self._held + size > self._window(slot))
            if is_full:
                # Objects that the reader has always continue: the others must not starve them.
                if slot.stream is None:
                    return None
                if held >= 2 * self._limits.piece_bytes:
                    continue
            piece = Piece(slot, slot.issued, size, now)
            slot.pieces.append(piece)
            slot.begun = True
            slot.issued += size
            slot.busy += 1
            self._held += size
            if slot.source.ranges:
                self._under_way[piece] = None
            self._settle(slot)
            return piece
        return None

    def _next_size(self, slot: Slot) -> int:
        if slot.end is None:
            return self._limits.piece_bytes
        if slot.issued == 0 and slot.end <= self._limits.whole_bytes:
            return slot.end
        return min(self._limits.piece_bytes, slot.end - slot.issued)

    def look(self) -> None:
        """Find late requests."""
        now = time.monotonic()
        self._look_at = now + LOOK_SECONDS
        for piece in self._under_way:
            if piece.tries < _MOST_TRIES and self._pace(piece).repeats(piece.begun, now):
                piece.begun = now
                piece.tries += 1
                self._late.append(piece)

    def _pace(self, piece: Piece) -> Pace:
        bits = piece.size.bit_length()
        if bits not in self._paces:
            self._paces[bits] = pace_of(self._who, bits)
        return self._paces[bits]

    def put(self, piece: Piece, answer: bytes | Exception) -> None:
        """Take an answer; of several, the first one that is no error."""
        slot = piece.slot
        slot.busy -= 1
        piece.busy -= 1
        if piece.answer is not None or (piece.busy and isinstance(answer, Exception)):
            self._repeated -= 1
        else:
            piece.answer = answer
            self._under_way.pop(piece, None)
            if slot.source.ranges and piece.tries == 1 and isinstance(answer, bytes):
                self._pace(piece).answered(piece.begun, time.monotonic())
            if not piece.dropped:
                self._keep(piece, answer)
        if slot.closed and not slot.busy:
            slot.source.close()

    def _keep(self, piece: Piece, answer: bytes | Exception) -> None:
        slot, size = piece.slot, piece.size
        if isinstance(answer, Exception):
            slot.failed, piece.size = True, 0
        elif len(answer) < size:
            slot.end = piece.start + len(answer)
            slot.issued, piece.size = slot.end, len(answer)
        self._held -= size - piece.size
        self._settle(slot)

    def take(self, slot: Slot) -> bytes | None:
        """Return the slot's next bytes, b"" if they are not there yet, None at its end. Raises what their request raised."""
        while slot.pieces:
            piece = slot.pieces[0]
            if piece.answer is None:
                return b""
            if isinstance(piece.answer, Exception):
                raise piece.answer
            slot.pieces.popleft()
            slot.place += piece.size
            self._held -= piece.size
            if piece.size:
                if slot.window is not None:
                    slot.window = 2 * slot.window if slot.window < self._limits.held_bytes else None
                return piece.answer
        return b"" if slot.closed or slot.wants_more() else None

    def seek(self, slot: Slot, place: int, size: int) -> None:
        """Continue a slot of `size` bytes at `place`, and drop the pieces for other positions."""
        self._forget(slot)
        slot.end, slot.begun = size, True
        slot.window = self._limits.piece_bytes
        slot.failed = False
        slot.issued = slot.place = place
        if slot not in self._unissued and slot.wants_more():
            self._unissued.appendleft(slot)

    def drop(self, slot: Slot) -> None:
        """End a slot; its source is closed after the last request."""
        if not slot.closed:
            slot.closed = True
            self._forget(slot)
            self._settle(slot)
            if not slot.busy:
                slot.source.close()

    def drop_all(self) -> None:
        """End the slots that the reader does not have, or that are not requested to their ends."""
        for slot in (*self.waiting, *self._unissued):
            self.drop(slot)
        self.waiting.clear()

    def _forget(self, slot: Slot) -> None:
        for piece in slot.pieces:
            piece.dropped = True
            self._held -= piece.size
            self._under_way.pop(piece, None)
        slot.pieces.clear()

    def _settle(self, slot: Slot) -> None:
        if not slot.wants_more() and slot in self._unissued:  # An error of remove() would have the repr of all pieces.
            self._unissued.remove(slot)
