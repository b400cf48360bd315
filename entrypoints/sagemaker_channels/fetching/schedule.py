"""The order of fetches and the limits on them: prefetch.py's bookkeeping, without threads, guarded by its lock.

A piece is requested only after all earlier ones, so the piece that is read next never waits behind later ones. Bytes count against
the limit from their request until they are read.

A request that takes unusually long is repeated (pace.py). The first answer counts, and an error only if no other answer follows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from sagemaker_channels.fetching.pace import Pace, pace_of

_MOST_REQUESTS = 3  # at the same time for one fetch
_MOST_REPEATED = 24  # requests under way; their answers come on top of the limit
_RATE_SECONDS = 0.25  # in which the reader's rate is measured
_DELAYS = 3  # whose bytes are held: answers take longer than the quickest one, and a piece may wait for an earlier one


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
    far_bytes: int = 0  # the same if the store is so far, and the reader so fast, that more must be under way
    piece_bytes: int = 8 << 20  # of one request
    whole_bytes: int = 0  # Objects up to this size are fetched by one request.
    objects: int = 512  # that are known and not read yet
    threads: int = 64  # requests at the same time


@dataclass(slots=True, eq=False)
class Slot:
    """One object between its fetches and its reading."""

    source: Fetchable
    end: int | None  # the object's size, once it is known
    issued: int = 0  # the byte up to which it has been requested
    place: int = 0  # the byte that is read next
    pieces: dict[int, bytes | Exception] = field(default_factory=dict)  # by their first byte
    held: int = 0  # bytes of pieces, fetched or requested
    busy: int = 0  # fetches under way
    generation: int = 0  # Fetches of earlier generations are dropped.
    window: int | None = None  # limit of `held` after a seek, because more seeks may follow
    given: bool = False  # The reader has its stream.
    joined: bool = False  # The reader joins its pieces, which takes memory enough.
    failed: bool = False  # Nothing after the failure is requested.
    closed: bool = False

    def wants_more(self) -> bool:
        """Return whether something is left to request; an empty object is requested too, since it can be gone."""
        return not (self.closed or self.failed) and (self.end is None or self.issued < max(self.end, 1))

    def at_end(self) -> bool:
        return self.end is not None and self.place >= self.end and self.issued > 0


@dataclass(slots=True, eq=False)
class Fetch:
    """One fetch of `size` bytes, by one request, or by several if it is slow."""

    slot: Slot
    generation: int
    start: int
    size: int
    begun: float  # when it was requested last, as time.monotonic() counts
    requests: int = 1  # under way
    answered: bool = False


@dataclass(slots=True)
class _Lane:
    """The fetches of about one size."""

    pace: Pace
    under_way: dict[Fetch, None] = field(default_factory=dict)  # the one that was requested first comes first
    latest: float = 0.0  # when the youngest of the answered ones was requested
    delay: float = 0.0  # seconds of the quickest answer to a single request; 0 before the first one

    def slow_at(self) -> float:
        """Return when its oldest fetch is to be repeated; never before a younger one is answered, as the store may be silent."""
        while self.under_way:
            oldest = next(iter(self.under_way))
            if oldest.generation == oldest.slot.generation:
                if oldest.begun < self.latest and self.pace.may_repeat():
                    return oldest.begun + self.pace.slow_seconds()
                break
            del self.under_way[oldest]
        return float("inf")


class Schedule:
    """The next fetch, if there is room for it."""

    def __init__(self, limits: Limits, who: str) -> None:
        self._limits = limits
        self._who = who
        self._lanes: dict[int, _Lane] = {}  # by the number of bits of the size
        self._repeated = 0  # requests under way for fetches that have another one or are answered
        self._held = 0  # bytes of all slots
        self._window = limits.held_bytes  # the limit of `_held`
        self._taken, self._taken_since = 0, time.monotonic()  # bytes, to measure the reader's rate
        self._unissued: deque[Slot] = deque()  # slots that want more, in order
        self.waiting: deque[Slot] = deque()  # slots whose streams the reader does not have yet

    def add(self, source: Fetchable) -> None:
        slot = Slot(source, source.size)
        self.waiting.append(slot)
        self._unissued.append(slot)

    def has_room(self) -> bool:
        return len(self.waiting) < self._limits.objects and self._held < self._window

    def most_threads(self) -> int:
        """Return how many threads may fetch; those that wait for late answers do not count."""
        return self._limits.threads + self._repeated

    def all_issued(self) -> bool:
        return not self._unissued and self._slow_lane() is None

    def next_fetch(self) -> Fetch | None:
        """Take the next fetch, or one that is to be requested again; None if there is none, or no room for it."""
        if lane := self._slow_lane():
            return self._repeat(lane)
        limits = self._limits
        for slot in self._unissued:
            if (slot.busy and not slot.source.ranges) or (slot.window is not None and slot.held >= slot.window):
                continue
            count = self._next_size(slot)
            # The object that is being read always continues: the others must not starve it.
            starved = slot.given and slot.held < 2 * limits.piece_bytes
            if self._held and self._held + count > self._window and not starved:
                return None
            fetch = Fetch(slot, slot.generation, slot.issued, count, time.monotonic())
            if slot.source.ranges:
                self._lane(fetch).under_way[fetch] = None
            slot.issued += max(count, 1)
            slot.busy += 1
            self._hold(slot, count)
            self._settle(slot)
            return fetch
        return None

    def _lane(self, fetch: Fetch) -> _Lane:
        bits = fetch.size.bit_length()
        if bits not in self._lanes:
            self._lanes[bits] = _Lane(pace_of(self._who, bits))
        return self._lanes[bits]

    def _slow_lane(self) -> _Lane | None:
        """Return the lane whose oldest fetch is to be repeated now."""
        lane = min(self._lanes.values(), key=_Lane.slow_at, default=None)
        is_slow = lane and self._repeated < _MOST_REPEATED and lane.slow_at() <= time.monotonic()
        return lane if is_slow else None

    def _repeat(self, lane: _Lane) -> Fetch:
        fetch = next(iter(lane.under_way))
        del lane.under_way[fetch]
        lane.pace.repeat()
        fetch.begun = time.monotonic()
        fetch.requests += 1
        if fetch.requests < _MOST_REQUESTS:
            lane.under_way[fetch] = None
        fetch.slot.busy += 1
        self._repeated += 1
        return fetch

    def _next_size(self, slot: Slot) -> int:
        if slot.end is None:
            return self._limits.piece_bytes
        if slot.issued == 0 and slot.end <= self._limits.whole_bytes:
            return slot.end
        return min(self._limits.piece_bytes, slot.end - slot.issued)

    def put(self, fetch: Fetch, piece: bytes | Exception) -> None:
        """Take an answer; of several, the first one that is no error."""
        slot = fetch.slot
        slot.busy -= 1
        fetch.requests -= 1
        counts = not (fetch.answered or (isinstance(piece, Exception) and fetch.requests))
        if counts:
            self._note(fetch, piece)
        else:
            self._repeated -= 1
        if slot.generation != fetch.generation:  # The reader has sought elsewhere or closed the stream.
            if slot.closed and not slot.busy:
                slot.source.close()
        elif counts:
            self._keep(fetch, piece)

    def _note(self, fetch: Fetch, piece: bytes | Exception) -> None:
        fetch.answered = True
        if fetch.slot.source.ranges:
            lane = self._lane(fetch)
            lane.under_way.pop(fetch, None)
            lane.latest = max(lane.latest, fetch.begun)
            if not isinstance(piece, Exception):
                seconds = time.monotonic() - fetch.begun
                lane.pace.answered(seconds)
                if not fetch.requests:
                    lane.delay = min(lane.delay or seconds, seconds)

    def _keep(self, fetch: Fetch, piece: bytes | Exception) -> None:
        slot = fetch.slot
        if isinstance(piece, Exception):
            slot.failed = True
            self._hold(slot, -fetch.size)
        else:
            self._hold(slot, len(piece) - fetch.size)
            if len(piece) < fetch.size:
                slot.end = fetch.start + len(piece)
        self._settle(slot)
        slot.pieces[fetch.start] = piece

    def take(self, slot: Slot) -> bytes:
        """Return the slot's next piece; empty if it is not there yet. Raises what its fetch raised, every time."""
        piece = slot.pieces.get(slot.place, b"")
        if isinstance(piece, Exception):
            raise piece
        if piece:
            del slot.pieces[slot.place]
            slot.place += len(piece)
            self._hold(slot, -len(piece))
            self._adapt(len(piece), slot.joined)
            if slot.window is not None:
                slot.window = 2 * slot.window if slot.window < self._limits.held_bytes else None
        return piece

    def _adapt(self, taken: int, is_joined: bool) -> None:
        """Let the window follow the product of the store's delay and the reader's rate."""
        self._taken += taken
        seconds = time.monotonic() - self._taken_since
        if seconds >= _RATE_SECONDS:
            delay = max((lane.delay for lane in self._lanes.values()), default=0.0)
            far_bytes = 0 if is_joined else min(int(_DELAYS * delay * self._taken / seconds), self._limits.far_bytes)
            self._window = max(self._limits.held_bytes, far_bytes)
            self._taken, self._taken_since = 0, self._taken_since + seconds

    def seek(self, slot: Slot, place: int, size: int) -> None:
        """Continue a slot of `size` bytes at `place`, and drop the pieces for other positions."""
        self._forget(slot)
        slot.end = size
        slot.window = self._limits.piece_bytes
        slot.failed = False
        slot.issued = slot.place = place
        if slot not in self._unissued and slot.wants_more():
            self._unissued.appendleft(slot)

    def drop(self, slot: Slot) -> None:
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

    def _hold(self, slot: Slot, count: int) -> None:
        slot.held += count
        self._held += count

    def _forget(self, slot: Slot) -> None:
        slot.generation += 1
        slot.pieces.clear()
        self._hold(slot, -slot.held)

    def _settle(self, slot: Slot) -> None:
        if not slot.wants_more() and slot in self._unissued:  # An error of remove() would have the repr of all pieces.
            self._unissued.remove(slot)
