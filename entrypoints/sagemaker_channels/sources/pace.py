"""How long a channel's requests take, and which late ones are repeated.

A store answers a few requests much later than the others, and the reader, which gets its bytes in order, would wait for each of
them. AWS advises to repeat such requests: the second one usually takes the usual time. Here a request is late if it takes longer
than nearly all of the latest answers of about its size. Only a small share is repeated, so that a store that is slow
because it is busy does not get busier.
"""

from __future__ import annotations

import time
from collections import deque
from functools import lru_cache

from sagemaker_channels.sources.stream import Limits, Piece

REPEATED_SHARE = 0.03  # repeated requests, of the answers
_SAVED = 8.0  # repeated requests that the answers may save up
_LATEST = 256  # answers that count
_ENOUGH = 32  # answers until anything is known
_QUANTILE = 0.9  # of the answers took less than the usual time
# A request is late after _FACTOR times the usual time; if it is the last one that may be repeated, after _FACTOR + _THRIFT times,
# so that the latest ones are repeated.
_FACTOR, _THRIFT = 1.2, 1.8
_LEAST_SECONDS = 0.01  # No request is late sooner.
LOOK_SECONDS = 0.01  # between two looks for late requests
_MOST_TRIES = 3  # requests for one piece


class Pace:
    """The answers to a channel's requests of about one size. Times are those of time.monotonic().

    Threads and forked processes need no lock for it: a lost update of its numbers changes little.
    """

    def __init__(self) -> None:
        self.quickest = 0.0  # seconds of the quickest of the latest answers; 0 if there are not enough
        self._usual_seconds = float("inf")
        self._youngest = 0.0  # when the youngest answered request was made
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self._answers = 0
        self._credit = 0.0

    def answered(self, begun: float, now: float) -> None:
        """Count the answer to a request that was made once."""
        self._youngest = max(self._youngest, begun)
        self._latest.append(now - begun)
        self._answers += 1
        self._credit = min(self._credit + REPEATED_SHARE, _SAVED)
        if self._answers >= _ENOUGH and self._answers % 16 == 0:
            latest = sorted(self._latest)
            self.quickest = latest[len(latest) // 50]  # not the first: a store may have kept some in a cache
            self._usual_seconds = max(latest[int(_QUANTILE * len(latest))], _LEAST_SECONDS)

    def repeats(self, begun: float, now: float) -> bool:
        """Return whether to repeat a request, and count it; none before a younger one is answered: the store may be silent."""
        late_seconds = self._usual_seconds * (_FACTOR + _THRIFT * (1 - self._credit / _SAVED))
        if self._credit < 1 or begun >= self._youngest or now - begun < late_seconds:
            return False
        self._credit -= 1
        return True


@lru_cache(maxsize=1024)
def pace_of(who: str, size_class: int) -> Pace:
    """Return the Pace of a channel's requests of one size class, which its readers in this process share."""
    return Pace()


class Requests:
    """A channel's requests under way for pieces of objects, of which late ones are made again."""

    def __init__(self, who: str) -> None:
        self.late: deque[Piece] = deque()  # to be requested again
        self.repeated = 0  # under way beyond the first one of a piece
        self._who = who
        self._under_way: dict[Piece, None] = {}
        self._paces: dict[int, Pace] = {}  # by the number of bits of the size
        self._look_at = 0.0

    def delay(self) -> float:
        """Return how many seconds the store takes at least; 0 if that is unknown."""
        return max((pace.quickest for pace in self._paces.values()), default=0.0)

    def most(self, limits: Limits) -> int:
        """Return how many requests may be under way; those that wait for late answers do not count."""
        return limits.most_requests(self.delay()) + self.repeated

    def add(self, piece: Piece) -> None:
        self._under_way[piece] = None

    def drop(self, piece: Piece) -> None:
        """Make no more requests for a piece."""
        self._under_way.pop(piece, None)

    def answered(self, piece: Piece, answer: bytes | Exception) -> bool:
        """Count an answer, and return whether it is the piece's: of several the first one that is no error."""
        piece.busy -= 1
        if piece.answer is not None or (piece.busy and isinstance(answer, Exception)):
            self.repeated -= 1
            return False
        self.drop(piece)
        if piece.tries == 1 and isinstance(answer, bytes):
            self._pace(piece).answered(piece.begun, time.monotonic())
        return True

    def look(self) -> None:
        """Find late requests, unless that was done a moment ago."""
        if (now := time.monotonic()) < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for piece in self._under_way:
            if piece.tries < _MOST_TRIES and self._pace(piece).repeats(piece.begun, now):
                piece.begun = now
                piece.tries += 1
                self.late.append(piece)

    def next_late(self) -> Piece | None:
        self.look()
        while self.late:
            piece = self.late.popleft()
            if piece in self._under_way:
                self.repeated += 1
                piece.busy += 1
                return piece
        return None

    def _pace(self, piece: Piece) -> Pace:
        bits = piece.size.bit_length()
        if bits not in self._paces:
            self._paces[bits] = pace_of(self._who, bits)
        return self._paces[bits]
