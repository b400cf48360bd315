"""How long a channel's requests take, and how many slow ones may be repeated.

A store answers a few requests much later than the others, and the reader, which gets its bytes in order, would wait for each of
them. AWS advises to repeat such requests: the second one usually takes the usual time. Here a request is slow if it takes longer
than nearly all of the latest answers of about its size. Only a small share is repeated, so that a store that is slow
because it is busy does not get busier.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

REPEATED_SHARE = 0.03  # repeated requests, of the answers
_SAVED = 8.0  # repeated requests that the answers may save up
_LATEST = 256  # answers that count
_ENOUGH = 32  # answers until the first repeated request
_QUANTILE = 0.9  # of the answers took less than the usual time
# A request is slow after _FACTOR times the usual time; if it is the last one that may be repeated, after _FACTOR + _THRIFT times.
_FACTOR, _THRIFT = 1.2, 1.8
_LEAST_SECONDS = 0.01  # No request is slow sooner.


class Pace:
    """The answers to a channel's requests of about one size.

    Threads and forked processes need no lock for it: a lost update of its numbers changes little.
    """

    def __init__(self) -> None:
        self._usual_seconds = float("inf")
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self._answers = 0
        self._credit = 0.0

    def answered(self, seconds: float) -> None:
        self._latest.append(seconds)
        self._answers += 1
        self._credit = min(self._credit + REPEATED_SHARE, _SAVED)
        if self._answers >= _ENOUGH and self._answers % 16 == 0:
            usual = sorted(self._latest)[int(_QUANTILE * len(self._latest))]
            self._usual_seconds = max(usual, _LEAST_SECONDS)

    def slow_seconds(self) -> float:
        """Return after how many seconds a request is slow: later if fewer may be repeated, so that the slowest ones are."""
        return self._usual_seconds * (_FACTOR + _THRIFT * (1 - self._credit / _SAVED))

    def may_repeat(self) -> bool:
        return self._credit >= 1

    def repeat(self) -> None:
        """Count a repeated request."""
        self._credit -= 1


@lru_cache(maxsize=1024)
def pace_of(who: str, size_class: int) -> Pace:
    """Return the Pace of a channel's requests of one size class, which its readers in this process share."""
    return Pace()
