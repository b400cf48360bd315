"""What a thread does to make samples, by channel: how long it is blocked, reads files and transforms, and how long it works in all.

A meter counts stretches of 100 items. Where counting would cost over 0.3 % of the time, as with tiny samples, it rests
after each stretch, which then stands for the rest, too. While it rests, only the time in which the thread is blocked is counted.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
STRETCH = 100  # items
_EVENT_SECONDS = 4e-6  # to count an item, a read or a transform, with a margin
_MOST_COST = 0.003  # of the time
_MOST_REST = 300  # times the stretch
_BLOCK_FILES = 16  # of so many files that are read for a block, one is counted, for all


@dataclass
class Work:
    """What was done for one channel. Times are in seconds."""

    items: float = 0.0  # samples or batches, as the consumer requests them
    samples: float = 0.0
    busy: float = 0.0  # reading, parsing and transforming, without `blocked`
    files: float = 0.0  # the part of it in reads of files
    transform: float = 0.0  # the part of it in transforms
    idle: float = 0.0  # until the consumer requests the next item
    blocked: float = 0.0  # until bytes arrive from the source
    bytes: float = 0.0  # that arrived

    def numbers(self) -> tuple[float, ...]:
        """Return the members in their order; `dataclasses.astuple` copies deeply, and takes 30 times as long."""
        return tuple(vars(self).values())

    def scaled(self, factor: float) -> Work:
        """Return the work of a longer time, except what is counted all the time."""
        longer = Work(*(factor * each for each in self.numbers()))
        longer.blocked, longer.bytes = self.blocked, self.bytes
        return longer


def total(works: Iterable[Work]) -> Work:
    """Return the sum of works."""
    return Work(*map(math.fsum, zip(*map(Work.numbers, works), strict=True)))


class _Current(threading.local):
    meter: Meter | None = None


_current = _Current()


class Meter:
    """Counts what the thread that uses it does, in one Work for each channel.

    `publish` receives the works of a stretch, and how long each of its items was waited for; a stretch also ends after `seconds`.
    """

    def __init__(
        self,
        publish: Callable[[Sequence[Work], Sequence[float]], object],
        channels: int = 1,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._publish, self._channels, self._seconds, self._clock = publish, channels, seconds, clock
        self.resting = False
        self._began = self._since = self._start = 0.0
        self._rest = self._passed = 0  # a rest's items, if the caller counts them
        self._files, self._every = 0, 1  # files that were opened, and of how many one is counted
        self._clear()

    def _clear(self) -> None:
        self.works = [Work() for _ in range(self._channels)]
        self.work = self.works[0]  # of the channel that is read
        self.events = 0
        self._waits: list[float] = []

    def over(
        self, items: Iterable[T], size: Callable[[T], int] | None = None, finish: Callable[[], object] | None = None
    ) -> Generator[T, None, None]:
        """Yield the items; `size` returns an item's samples, `finish` is called at the end."""
        iterator, nothing = iter(items), object()
        try:
            while True:
                if rest := self.start():
                    count = itertools.count(1)
                    yield from itertools.compress(itertools.islice(iterator, rest), count)
                    self.resume(next(count) - 1)
                    continue
                item: Any = next(iterator, nothing)
                if item is nothing:
                    return
                self.stop(1 if size is None else size(item))
                yield item
                del item  # frees it while the next is waited for
        finally:
            _current.meter = None
            self.publish()
            if isinstance(iterator, Generator):
                iterator.close()
            if finish is not None:
                finish()

    def start(self) -> int:
        """Begin an item, or return how many to take without `start` and `stop`, before `resume`."""
        now = self._clock()
        if self._waits:
            self.work.idle += now - self._since
            spent = now - self._began or 1e-9
            if len(self._waits) == STRETCH or spent >= self._seconds:
                rest = int(len(self._waits) * min(self.events * _EVENT_SECONDS / _MOST_COST / spent - 1, _MOST_REST))
                if rest > 0:
                    _current.meter, self.resting = self, True
                    return rest
                self.publish()
        if not self._waits:
            self._began = now
        self.work, self._since, self._start = self.works[0], now, now
        _current.meter = self
        return 0

    def rests(self) -> bool:
        """Begin an item that `stop` ends, or return that it is not counted: for items that are not iterated over."""
        if self.resting and self._passed == self._rest:
            self.resume(self._rest)
        if not self.resting:
            self._rest, self._passed = self.start(), 0
        self._passed += 1
        return self.resting

    def stop(self, samples: int = 1) -> None:
        """End an item."""
        _current.meter = None
        now = self._clock()
        self._charge(now)
        self._waits.append(now - self._start)
        self.work.items += 1
        if self._channels == 1:
            self.work.samples += samples

    def _charge(self, now: float) -> None:
        self.work.busy += now - self._since
        self._since = now
        self.events += 1

    def resume(self, rested: int) -> None:
        """End a rest of so many items."""
        self.resting = False
        self.publish(1 + rested / len(self._waits))

    def publish(self, factor: float = 1.0) -> None:
        """Pass on what was counted, and begin a stretch."""
        if self._waits:
            works, waits = [work.scaled(factor) for work in self.works], self._waits
            self._clear()
            self._publish(works, waits)

    def turn_to(self, channel: int, samples: int) -> None:
        """Count for another channel, of which so many samples are read."""
        if not self.resting:
            self._charge(self._clock())
            if self._channels > 1:  # `stop` counts those of one channel
                self.works[channel].samples += samples
        self.work = self.works[channel]

    def read_block(self, read: Callable[[], T]) -> T:
        """Read the samples of many items, and pass on what this took: a stretch stands for its rest, but this happens once."""
        begin = self._clock()
        if not self.resting:
            self._charge(begin)
        work, resting, events = self.work, self.resting, self.events
        block = self.work = Work()
        self.resting, self._every = False, _BLOCK_FILES
        try:
            return read()
        finally:
            self.work, self.resting, self.events, self._since = work, resting, events, self._clock()
            block.busy = self._since - begin - block.blocked
            block.files, self._every = block.files * _BLOCK_FILES, 1
            self._publish([block if each is work else Work() for each in self.works], ())

    def opened(self, size: int) -> bool:
        """Count the bytes of a file, and return whether its reads are counted."""
        self.work.bytes += size
        self._files += 1
        return not self.resting and self._files % self._every == 0

    def block(self, seconds: float) -> None:
        self.work.blocked += seconds
        self._since += seconds


def waited(begin: float) -> None:
    """Count the time since `begin`, of time.perf_counter, in which this thread was blocked by its source."""
    if (meter := _current.meter) is not None:
        meter.block(time.perf_counter() - begin)


def received(count: float) -> None:
    """Count bytes that have arrived from the source."""
    if (meter := _current.meter) is not None:
        meter.work.bytes += count


def turn_to(channel: int, samples: int = 1) -> None:
    """Count what this thread does from now on for one of its meter's channels, by its number, and samples that it reads."""
    if (meter := _current.meter) is not None:
        meter.turn_to(channel, samples)


def opened(size: int) -> bool:
    """Count the bytes of a file, which is read whole, and return whether its reads are counted."""
    return (meter := _current.meter) is not None and meter.opened(size)


def read_block(read: Callable[[], T]) -> T:
    """Read a block of samples, and count it in full, also while this thread's meter rests."""
    return read() if (meter := _current.meter) is None else meter.read_block(read)


def counted_read(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a file's method such that its time is counted unless the meter rests."""

    def counted(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = read(*arguments)
        if (meter := _current.meter) is not None and not meter.resting:
            meter.work.files += time.perf_counter() - begin
            meter.events += 1
        return result

    return counted


def awaited_read(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return such a method whose calls are counted all the time."""

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
    if meter is None or meter.resting:
        return transform(sample)
    begin = time.perf_counter()
    try:
        return transform(sample)
    finally:
        meter.work.transform += time.perf_counter() - begin
        meter.events += 1
