"""What a thread does to make samples, by channel: how long it waits for bytes and transforms, and how long it works in all.

After the first hundred items, about one in five milliseconds is timed and stands for those before it, so that counting costs little
even if samples are tiny. How long the thread is blocked, and the bytes that arrive, are always counted.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
_FIRST_ITEMS = 100  # which are all timed
_EVERY_SECONDS = 5e-3  # between two timed items later
_MOST_RUN = 10_000  # items between these
_SHARED_SECONDS = 0.05  # between two times that a meter passes on what it has counted


@dataclass
class Work:
    """What was done for one channel. Times are in seconds."""

    items: float = 0.0  # samples or batches, as the consumer requests them
    samples: float = 0.0
    busy: float = 0.0  # parsing and transforming, without `blocked`
    transform: float = 0.0  # the part of it in transforms
    idle: float = 0.0  # until the consumer requests the next item
    blocked: float = 0.0  # until bytes arrive from the source
    bytes: float = 0.0  # that arrived

    def numbers(self) -> tuple[float, ...]:
        """Return the members in their order; `dataclasses.astuple` copies deeply, and takes 30 times as long."""
        return tuple(vars(self).values())


def total(works: Iterable[Work]) -> Work:
    return Work(*map(math.fsum, zip(*map(Work.numbers, works), strict=True)))


class _Current(threading.local):
    meter: Meter | None = None


_current = _Current()


class Meter:
    """Counts what the thread that uses it does, in one Work for each channel.

    `publish` receives what was counted, now and then; `finish` is called after a loop.
    """

    def __init__(
        self,
        publish: Callable[[Sequence[Work]], object],
        channels: int = 1,
        finish: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._publish, self._finish, self._clock = publish, finish, clock
        self.weight = 0  # the number of items that the present one stands for; 0 if it is not timed
        self._timed = 0  # items
        self._start = self._since = self._published = 0.0
        self._clear(channels)

    def _clear(self, channels: int) -> None:
        self.works = [Work() for _ in range(channels)]
        self.work = self.works[0]  # of the channel that is read

    def over(self, items: Iterable[T]) -> Generator[T, None, None]:
        iterator, nothing, run = iter(items), object(), 0
        try:
            while True:
                self.begin(1 + run)
                item: Any = next(iterator, nothing)
                if item is nothing:
                    self.work.items += run  # in the last moment
                    return
                self.end(1)
                yield item
                del item  # frees it while the next is waited for
                if run := self._run():
                    _current.meter, count = self, itertools.count(1)
                    yield from itertools.compress(itertools.islice(iterator, run), count)
                    run = next(count) - 1
        finally:
            _current.meter, self.weight = None, 0
            if not sys.is_finalizing():  # Then modules are missing, such as torch and the log's.
                self.publish()
            if isinstance(iterator, Generator):
                iterator.close()
            if self._finish is not None and not sys.is_finalizing():
                self._finish()

    def _run(self) -> int:
        """Return how many items to take without timing them."""
        spent = self._pause()
        return min(int(_EVERY_SECONDS / (spent or 1e-9)), _MOST_RUN) if self._timed >= _FIRST_ITEMS else 0

    def _pause(self) -> float:
        """Count the time since the last timed item, unless others were taken since; return how long both took."""
        now = self._clock()
        if self.weight:
            self.work.idle += self.weight * (now - self._since)
            self.weight = 0
        if now - self._published >= _SHARED_SECONDS:
            self._published = now
            self.publish()
        return now - self._start

    def begin(self, weight: int = 1) -> None:
        """Begin an item that is timed and stands for so many."""
        self._pause()
        self.weight, self.work = weight, self.works[0]
        self._timed += 1
        self._start = self._since = self._clock()
        _current.meter = self

    def end(self, samples: int) -> None:
        _current.meter = None
        self._charge()
        self.work.items += self.weight
        if len(self.works) == 1:
            self.work.samples += self.weight * samples

    def _charge(self) -> None:
        now = self._clock()
        self.work.busy += self.weight * (now - self._since)
        self._since = now

    def publish(self) -> None:
        works = self.works
        self._clear(len(works))
        if any(work != Work() for work in works):
            self._publish(works)

    def turn_to(self, channel: int, samples: int) -> None:
        """Count for another channel, of which so many samples are read."""
        if self.weight:
            self._charge()
            if len(self.works) > 1:  # `end` counts those of one channel
                self.works[channel].samples += self.weight * samples
        self.work = self.works[channel]

    def read_block(self, read: Callable[[], T]) -> T:
        """Read the samples of many items, and count it once, also if the present item stands for others or is not timed."""
        self._charge()
        begin, work, weight = self._since, self.work, self.weight
        block = self.work = Work()
        self.weight = 1
        try:
            return read()
        finally:
            self.work, self.weight, self._since = work, weight, self._clock()
            work.busy += self._since - begin - block.blocked
            work.blocked += block.blocked
            work.bytes += block.bytes

    def block(self, seconds: float, weight: int = 1) -> None:
        """Count a wait for bytes, which may stand for others."""
        self.work.blocked += weight * seconds
        self._since += seconds


def waited(begin: float) -> None:
    """Count the time since `begin`, of time.perf_counter, in which this thread was blocked by its source."""
    if (meter := _current.meter) is not None:
        meter.block(time.perf_counter() - begin)


def received(count: float) -> None:
    if (meter := _current.meter) is not None:
        meter.work.bytes += count


def turn_to(channel: int, samples: int = 1) -> None:
    """Count what this thread does from now on for one of its meter's channels, by its number, and samples that it reads."""
    if (meter := _current.meter) is not None:
        meter.turn_to(channel, samples)


def opened(size: int) -> bool:
    """Count the bytes of a file, which is read whole, and return whether its reads are timed."""
    received(size)
    return (meter := _current.meter) is not None and meter.weight > 0


def read_block(read: Callable[[], T]) -> T:
    return read() if (meter := _current.meter) is None else meter.read_block(read)


def counted_read(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a file's method such that its time is counted if the item is timed."""

    def counted(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = read(*arguments)
        if (meter := _current.meter) is not None:
            meter.block(time.perf_counter() - begin, meter.weight)
        return result

    return counted


def awaited_read(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return such a method whose calls are always counted."""

    def awaited(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = read(*arguments)
        waited(begin)
        received(result if isinstance(result, int) else len(result))
        return result

    return awaited


def count_transform(transform: Callable[[Any], T], sample: Any) -> T:
    """Return the transformed sample, and count the time."""
    meter = _current.meter
    if meter is None or not meter.weight:
        return transform(sample)
    begin = time.perf_counter()
    try:
        return transform(sample)
    finally:
        meter.work.transform += meter.weight * (time.perf_counter() - begin)
