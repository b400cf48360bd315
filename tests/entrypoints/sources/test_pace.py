"""Slow requests are repeated: few of them, the bytes stay the same, and one error of two answers is no error."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from patience import PATIENCE, wait_for
from sagemaker_channels.sources.pace import REPEATED_SHARE, Pace, pace_of
from sagemaker_channels.sources.prefetch import read_ahead
from sagemaker_channels.sources.schedule import Fetchable, Limits, Piece, Schedule

COUNT, SLOW = 40, 10  # objects, and the one whose first answer is late
USUAL_SECONDS = 0.05
LIMITS = Limits(held_bytes=64, piece_bytes=16, whole_bytes=16, threads=4)


class Object(Fetchable):
    """Ten bytes of its own; `answer` is called by each request with the request's number, from 1."""

    ranges = True
    size = 10

    def __init__(self, number: int, answer: Callable[[int], None] = lambda request: None) -> None:
        self.key = str(number)
        self.data = f"{number:010d}".encode()
        self.requests = itertools.count(1)
        self.asked = 0
        self.closed = 0
        self._answer = answer

    def fetch(self, start: int, count: int) -> bytes:
        self.asked = next(self.requests)
        self._answer(self.asked)
        return self.data[start : start + count]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def who(request: pytest.FixtureRequest) -> str:
    """A channel whose requests usually take long enough for a busy machine."""
    name = str(request.node.nodeid)
    for number in range(300):
        pace_of(name, Object.size.bit_length()).answered(number - 1e6, number - 1e6 + USUAL_SECONDS)
    return name


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_for(lambda: not set(threading.enumerate()) - before)


def objects(answer: Callable[[int], None]) -> list[Object]:
    return [Object(number, *([answer] if number == SLOW else [])) for number in range(COUNT)]


def read_all(sources: list[Object], who: str) -> list[bytes]:
    found = []
    with closing(read_ahead(iter(sources), LIMITS, who)) as streams:
        for stream in streams:
            found.append(stream.read())
            stream.close()
    return found


def test_late_answer_is_overtaken_by_the_second_requests(who: str) -> None:
    everything_read = threading.Event()
    sources = objects(lambda request: None if request > 1 else (everything_read.wait(PATIENCE), None)[1])
    assert read_all(sources, who) == [source.data for source in sources]
    everything_read.set()
    wait_for(lambda: [source.closed for source in sources] == [1] * COUNT)  # also the one that was answered twice
    assert sources[SLOW].asked == 2


@pytest.mark.parametrize("failing", [1, 2])
def test_error_of_one_request_does_not_hide_the_other_answer(who: str, failing: int) -> None:
    asked_twice, failed = threading.Event(), threading.Event()

    def answer(request: int) -> None:
        if request == 2:
            asked_twice.set()
        assert asked_twice.wait(PATIENCE)
        if request == failing:
            failed.set()
            raise OSError("lost")
        assert failed.wait(PATIENCE)

    sources = objects(answer)
    assert read_all(sources, who) == [source.data for source in sources]


def test_error_of_both_requests_is_raised(who: str) -> None:
    asked_twice = threading.Event()

    def answer(request: int) -> None:
        if request == 2:
            asked_twice.set()
        assert asked_twice.wait(PATIENCE)
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        read_all(objects(answer), who)


def test_second_requests_are_few() -> None:
    pace, repeated = Pace(), 0
    for now in range(10_000):
        pace.answered(now, now + 0.02)
        repeated += pace.repeats(now - 0.5, now)
    assert 0 < repeated <= REPEATED_SHARE * 10_000


def test_second_requests_saved_up_are_few() -> None:
    pace, repeated = Pace(), 0
    for now in range(10_000):
        pace.answered(now, now + 0.02)
    while pace.repeats(0, 10_000):
        repeated += 1
    assert 0 < repeated <= 8


def issued(schedule: Schedule, count: int) -> list[Piece]:
    pieces = []
    for _ in range(count):
        schedule.add(Object(0))
        pieces.append(schedule.next_piece())
    return [piece for piece in pieces if piece is not None]


def test_request_is_repeated_whenever_a_younger_one_is_answered(who: str) -> None:
    schedule = Schedule(Limits(), who)
    oldest, younger = issued(schedule, 2)
    schedule.put(younger, b"0123456789")
    most = schedule.most_requests()
    wait_for(lambda: schedule.next_piece() is oldest)
    time.sleep(3 * USUAL_SECONDS)
    assert schedule.next_piece() is None
    assert schedule.most_requests() == most + 1
    [youngest] = issued(schedule, 1)
    schedule.put(youngest, b"0123456789")
    wait_for(lambda: schedule.next_piece() is oldest)
    schedule.put(oldest, OSError("lost"))
    schedule.put(oldest, b"0123456789")
    schedule.put(oldest, b"abcdefghij")
    assert schedule.most_requests() == most
    assert schedule.take(oldest.slot) == b"0123456789"


def test_silent_store_gets_no_second_requests(who: str) -> None:
    schedule = Schedule(Limits(), who)
    assert len(issued(schedule, 20)) == 20
    time.sleep(3 * USUAL_SECONDS)
    assert schedule.next_piece() is None


def test_slow_request_of_a_closed_stream_is_not_repeated(who: str) -> None:
    schedule = Schedule(Limits(), who)
    oldest, younger = issued(schedule, 2)
    schedule.put(younger, b"0123456789")
    schedule.drop(oldest.slot)
    time.sleep(3 * USUAL_SECONDS)
    assert schedule.next_piece() is None
