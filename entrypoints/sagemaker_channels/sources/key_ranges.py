"""Listing many pages at a time: the keys after a given one are divided into ranges, as more of them are known.

A thread lists a range page by page. If fewer threads run than may, it leaves the second half of what seems to be left of its range
to another one: the middle is a key made of the characters that keys have had so far. The ranges always cover all keys, so a bad
guess costs a request, but never an object.
"""

from __future__ import annotations

import operator
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import takewhile
from queue import SimpleQueue

from sagemaker_channels.sources.background import in_background
from sagemaker_channels.sources.listing import Page

# Requests a page: the first one after a key, or the one of a token. Returns it and the token of the next one (None: no more).
Request = Callable[[bytes, str | None], tuple[Page, str | None]]

THREADS = 32
_SPLIT = 2000  # keys that a range must seem to have left
_SPLITS = 8  # of one range after a page: keys that begin with the same unknown characters need many
_DIGITS = 40  # characters of a key that are compared


class UnsuitableError(Exception):
    """The store cannot be listed in this way, but perhaps page by page."""


class _Ranges:
    def __init__(self, prefix: bytes, request: Request) -> None:
        self.found: SimpleQueue[Page | BaseException | None] = SimpleQueue()  # None: a range has ended
        self.begun = 0  # ranges
        self.stopped = False
        self._prefix, self._request = prefix, request
        self._lock, self._running = threading.Lock(), 0
        self._letters: list[str] = []

    def begin(self, low: bytes, high: bytes | None) -> None:
        """List the keys after `low` up to `high`, None for all, in a thread."""
        self.begun += 1
        self._running += 1
        in_background(lambda: self._run(low, high), "listing")

    def _run(self, low: bytes, high: bytes | None) -> None:
        try:
            self._list(low, high)
        except BaseException as error:  # noqa: BLE001 - raised by `pages_after`
            self.found.put(error)
        with self._lock:
            self._running -= 1
        self.found.put(None)

    def _list(self, low: bytes, high: bytes | None) -> None:
        start, count, token = low, 0, None
        while not self.stopped:
            page, token = self._request(low, token)
            keys = page.keys
            if keys and not (low < keys[0] and all(map(operator.lt, keys, keys[1:]))):
                raise UnsuitableError("the keys are not in order")
            inside = len(keys) if high is None else bisect_right(keys, high)
            self.found.put(Page(keys[:inside], page.sizes[:inside], page.versions[:inside]))
            if token is None or inside < len(keys):
                return
            if keys:
                low, count = keys[-1], count + inside
                with self._lock:
                    self._letters = sorted({*self._letters, *b"".join(keys[::97]).decode("utf-8", "replace")})
                    high = self._split(start, low, high, count)

    def _split(self, start: bytes, low: bytes, high: bytes | None, count: int) -> bytes | None:
        """Leave the end of a range to other threads, and return where it ends then; `count` keys after `start` are listed."""
        for _ in range(min(_SPLITS, THREADS - self._running)):
            common = self._prefix if high is None else _common(start, high)
            base = len(self._letters) + 1
            first, reached = self._number(start, common), self._number(low, common)
            last = base**_DIGITS if high is None else self._number(high, common)
            if count * (last - reached) < _SPLIT * (reached - first):
                break
            number, digits = (reached + last) // 2, list[int]()
            for _ in range(_DIGITS):
                number, digit = divmod(number, base)
                digits.append(digit)
            letters = (self._letters[digit - 1] for digit in takewhile(bool, reversed(digits)))  # The key ends at a 0.
            middle = common + "".join(letters).encode()
            if not (low < middle and (high is None or middle < high)):
                break
            self.begin(middle, high)
            high = middle
        return high

    def _number(self, key: bytes, common: bytes) -> int:
        """Return a key that begins with `common` as a number with a digit for each of the next characters."""
        number, base = 0, len(self._letters) + 1
        for letter in key[len(common) :].decode("utf-8", "replace")[:_DIGITS].ljust(_DIGITS, "\0"):
            number = number * base + (bisect_left(self._letters, letter) + 1 if letter != "\0" else 0)
        return number


def _common(one: bytes, other: bytes) -> bytes:
    """Return the characters that both begin with."""
    count = next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[:count].decode("utf-8", "ignore").encode()


def pages_after(prefix: bytes, after: bytes, request: Request) -> Iterator[Page]:
    """Yield all pages of a prefix after a key with that prefix, in any order. Raises UnsuitableError if that fails."""
    ranges, ended = _Ranges(prefix, request), 0
    try:
        ranges.begin(after, None)
        while ended < ranges.begun:
            found = ranges.found.get()
            if isinstance(found, BaseException):
                raise UnsuitableError(str(found)) from found
            if found is None:
                ended += 1
            else:
                yield found
    finally:
        ranges.stopped = True
