"""Listing many pages at a time: the keys after a given one are divided into ranges, as more of them are known.

A thread lists a range page by page. A free thread takes the second half of the range that seems to have the most keys left: it
requests the first page after a key in the middle, made of the characters that keys have had so far. If no key is between the middle
and the range's end, the range ends in its middle, and the next attempt is nearer to its beginning. The ranges always cover
all keys, so a bad guess costs a request, but never an object.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from sagemaker_channels.fetching.background import in_background
from sagemaker_channels.fetching.pages import Page, UnsuitableError

# Requests a page: the first one after a key, or the one of a token. Returns it and the token of the next one (None: no more).
Request = Callable[[bytes, str | None], tuple[Page, str | None]]

THREADS = 32
_SPLIT = 2000  # keys that a range must seem to have left
_DIGITS = 40  # characters of a key that are compared


class _Range:
    """The keys after `low` up to `high`, None for all."""

    def __init__(self, low: bytes, high: bytes | None) -> None:
        self.start = self.low = low
        self.high = high
        self.count = 0  # keys that were listed
        self.failures = 0  # attempts to split it in which there was no key
        self.is_split = False  # A thread requests a page from its middle, or it cannot be split.


class _Ranges:
    def __init__(self, prefix: bytes, after: bytes, request: Request) -> None:
        self.found: SimpleQueue[Page | BaseException | None] = SimpleQueue()
        self.stopped = False
        self._prefix, self._request = prefix, request
        self._changed = threading.Condition()
        self._open = {_Range(max(prefix, after), None)}
        self._letters: list[str] = []
        self._pages = self._threads = 0
        self._start_thread(next(iter(self._open)))

    def _start_thread(self, part: _Range | None = None) -> None:
        self._threads += 1
        in_background(lambda: self._run(part), "listing")

    def _run(self, part: _Range | None) -> None:
        try:
            if part is not None:
                self._follow(part, *self._request(part.low, None))
            while (split := self._wait_for_split()) is not None:
                page, token = self._request(split[1], None)
                if (part := self._second_half(*split, page, token)) is not None:
                    self._follow(part, page, token)
        except BaseException as error:  # noqa: BLE001 - raised by `pages_after`
            self.found.put(error)

    def _follow(self, part: _Range, page: Page, token: str | None) -> None:
        while self._add(part, page, token):
            page, token = self._request(part.low, token)

    def _add(self, part: _Range, page: Page, token: str | None) -> bool:
        """Add a range's next page; return whether there are more."""
        if not page.follows(part.low):
            raise UnsuitableError("the keys are not in order")
        with self._changed:
            keys = page.keys
            count = len(keys) if part.high is None else bisect_right(keys, part.high)
            if count:
                self.found.put(page.up_to(count))
                part.low, part.count = keys[count - 1], part.count + count
                self._letters = sorted({*self._letters, *b"".join(keys[::97]).decode("utf-8", "replace")})
            ended = token is None or count < len(keys) or (part.high is not None and part.low >= part.high)
            self._pages += 1
            if ended:
                self._open.remove(part)
            if not self._open:
                self.found.put(None)
                self._changed.notify_all()
            elif self._threads < min(THREADS, self._pages):
                self._start_thread()
            else:
                self._changed.notify()
            return not (ended or self.stopped)

    def _wait_for_split(self) -> tuple[_Range, bytes] | None:
        """Return a range and a key in the middle of it; None if there is nothing left."""
        with self._changed:
            while self._open and not self.stopped:
                left, part = max(((self._left(part), part) for part in self._open), key=lambda pair: pair[0])
                if left >= _SPLIT:
                    part.is_split = True
                    if (middle := self._middle(part)) is not None:
                        return part, middle
                else:
                    self._changed.wait()
            return None

    def _second_half(self, part: _Range, middle: bytes, page: Page, token: str | None) -> _Range | None:
        """Return the range from the middle on, unless it is empty or was listed meanwhile."""
        with self._changed:
            part.is_split = False
            if part not in self._open or part.low >= middle:
                return None
            last = part.high
            part.high = middle
            if not page.keys if token is None else page.keys and last is not None and page.keys[0] > last:
                part.failures += 1
                return None
            part.failures = 0
            half = _Range(middle, last)
            self._open.add(half)
            return half

    def _left(self, part: _Range) -> int:
        """Estimate how many keys of a range are left to list."""
        if part.is_split:
            return 0
        start, low, high, _ = self._numbers(part)
        return part.count * (high - low) // max(1, low - start)

    def _middle(self, part: _Range) -> bytes | None:
        _, low, high, common = self._numbers(part)
        number, letters = low + ((high - low) >> (1 + part.failures)), []
        base = len(self._letters) + 1
        for _ in range(_DIGITS):
            number, digit = divmod(number, base)
            letters.append(self._letters[digit - 1] if digit else "")
        middle = common + "".join(reversed(letters)).encode()
        return middle if part.low < middle and (part.high is None or middle < part.high) else None

    def _numbers(self, part: _Range) -> tuple[int, int, int, bytes]:
        """Return a range's `start`, `low` and `high` as numbers with a digit for each character, and what they begin with."""
        common = self._prefix if part.high is None else _common(part.start, part.high)
        high = (len(self._letters) + 1) ** _DIGITS if part.high is None else self._number(part.high, common)
        return self._number(part.start, common), self._number(part.low, common), high, common

    def _number(self, key: bytes, common: bytes) -> int:
        number, text = 0, key[len(common) :].decode("utf-8", "replace")[:_DIGITS]
        for letter in text:
            number = number * (len(self._letters) + 1) + bisect_left(self._letters, letter) + 1
        return number * int((len(self._letters) + 1) ** (_DIGITS - len(text)))


def _common(one: bytes, other: bytes) -> bytes:
    """Return the characters that both begin with."""
    count = next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[:count].decode("utf-8", "ignore").encode()


def pages_after(prefix: bytes, after: bytes, request: Request) -> Iterator[Page]:
    """Yield all pages of a prefix after a key, in any order. Raises UnsuitableError if that fails."""
    ranges = _Ranges(prefix, after, request)
    try:
        while (found := ranges.found.get()) is not None:
            if isinstance(found, BaseException):
                raise UnsuitableError(str(found)) from found
            yield found
    finally:
        ranges.stopped = True
