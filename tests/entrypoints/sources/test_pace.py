"""Slow requests are repeated: few of them, the bytes stay the same, and one error of two answers is no error."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from patience import PATIENCE, wait_for
from sagemaker_channels.sources import pace
from sagemaker_channels.sources.pace import REPEATED_SHARE, Pace, Requests, pace_of
from sagemaker_channels.sources.prefetch import read_ahead
from sagemaker_channels.sources.stream import Limits, Piece

COUNT, SLOW = 40, 10  # objects, and the one whose first answer is late
USUAL_SECONDS = 0.05
LIMITS = Limits(held_bytes=64, piece_bytes=16, whole_bytes=16, threads=4)


class Object:
    """Ten bytes of its own; `answer` is called by each request with the request's number, from 1."""

    ranges = True
    size = 10

    def __init__(self, number: int, answer: Callable[[int], None] = lambda request: None) -> None:
        self.key = str(number)
        self.data = f"{number:010d}".encode()
        self.requests = itertools.count(1)
        self.asked = 0
        self._answer = answer

    def fetch(self, start: int, count: int) -> bytes:
        self.asked = next(self.requests)
        self._answer(self.asked)
        return self.data[start : start + count]

    def length(self) -> int:
        return self.size


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
    found, repeated = Pace(), 0
    for now in range(10_000):
        found.answered(now, now + 0.02)
        repeated += found.repeats(now - 0.5, now)
    assert 0 < repeated <= REPEATED_SHARE * 10_000


def test_second_requests_saved_up_are_few() -> None:
    found, repeated = Pace(), 0
    for now in range(10_000):
        found.answered(now, now + 0.02)
    while found.repeats(0, 10_000):
        repeated += 1
    assert 0 < repeated <= 8


def begun(requests: Requests, count: int) -> list[Piece]:
    """Pieces that are requested now."""
    pieces = [Piece(None, 0, Object.size, time.monotonic()) for _ in range(count)]  # type: ignore[arg-type]
    for piece in pieces:
        requests.add(piece)
    return pieces


def test_request_is_repeated_whenever_a_younger_one_is_answered(who: str) -> None:
    requests = Requests(who)
    oldest, younger = begun(requests, 2)
    assert requests.answered(younger, b"0123456789")
    wait_for(lambda: requests.next_late() is oldest)
    time.sleep(3 * USUAL_SECONDS)
    assert requests.next_late() is None
    assert requests.repeated == 1
    [youngest] = begun(requests, 1)
    assert requests.answered(youngest, b"0123456789")
    wait_for(lambda: requests.next_late() is oldest)
    assert not requests.answered(oldest, OSError("lost"))
    assert requests.answered(oldest, b"0123456789")
    oldest.answer = b"0123456789"
    assert not requests.answered(oldest, b"abcdefghij")
    assert requests.repeated == 0


def test_silent_store_gets_no_second_requests(who: str) -> None:
    requests = Requests(who)
    begun(requests, 20)
    time.sleep(3 * USUAL_SECONDS)
    assert requests.next_late() is None


def test_late_request_of_a_closed_stream_is_not_repeated(who: str) -> None:
    requests = Requests(who)
    oldest, younger = begun(requests, 2)
    requests.answered(younger, b"0123456789")
    requests.drop(oldest)
    time.sleep(3 * USUAL_SECONDS)
    assert requests.next_late() is None


@pytest.mark.parametrize(
    ("delay", "most", "held"),
    [(0.0, 64, 10), (0.0004, 8, 10), (0.001, 10, 10), (0.004, 40, 10), (0.0064, 64, 12.8), (1.0, 64, 20)],
)
def test_requests_and_bytes_under_way_follow_the_stores_delay(
    monkeypatch: pytest.MonkeyPatch, delay: float, most: int, held: float
) -> None:
    """Near by, more requests only wait for the processor; far away, fewer leave the reader waiting. The slowest size counts."""
    requests = Requests(f"a store {delay} s away")
    for size, seconds in ((Object.size, delay), (1000, delay / 2), (5000, 0.0)):
        monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda taken=seconds: taken))
        for _ in range(32 if seconds else bool(delay)):
            piece = Piece(None, 0, size, begun=0.0)  # type: ignore[arg-type]
            assert requests.answered(piece, b"any")
    limits = Limits(held_bytes=10_000_000, far_bytes=20_000_000)
    requests.repeated = 2  # those that wait for late answers take the place of no other
    assert requests.most(limits) == most + 2
    assert limits.most_bytes(requests.delay()) == held * 1_000_000
