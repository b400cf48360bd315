"""The order of fetches, without threads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sagemaker_channels.fetching import schedule as module
from sagemaker_channels.fetching.schedule import Fetchable, Limits, Schedule


class Piece(bytes):
    """A piece of an object, which may be long."""

    def __repr__(self) -> str:
        raise AssertionError("its text takes four times its memory, and longer than fetching it")


class Object(Fetchable):
    key, size, ranges = "key", 4, True

    def fetch(self, start: int, count: int) -> bytes:
        return Piece(count)


def test_pieces_that_arrive_after_the_last_request_are_not_shown_as_text() -> None:
    schedule = Schedule(Limits(piece_bytes=1), "a test")
    schedule.add(Object())
    fetches = list(iter(schedule.next_fetch, None))
    for fetch in fetches:
        schedule.put(fetch, Object().fetch(fetch.start, fetch.size))
    [slot] = schedule.waiting
    assert [schedule.take(slot) for _ in fetches] == [b"\0"] * 4
    assert slot.at_end()


@pytest.mark.parametrize(
    ("delay", "is_joined", "window"),
    [
        (0.3, False, 10),  # three delays of the reader's nine bytes per second are fewer than the usual window
        (0.5, False, 13),
        (0.9, False, 20),  # at most
        (0.9, True, 10),  # The joined pieces take memory enough.
    ],
)
def test_window_follows_the_stores_delay_and_the_readers_rate(
    monkeypatch: pytest.MonkeyPatch, delay: float, is_joined: bool, window: int
) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    source = Object()
    source.size = 100
    schedule = Schedule(Limits(held_bytes=10, far_bytes=20, piece_bytes=1), f"a store {delay} s away")
    schedule.add(source)
    [slot] = schedule.waiting
    slot.joined = is_joined
    fetches = list(iter(schedule.next_fetch, None))
    clock.now = delay
    for fetch in fetches:
        schedule.put(fetch, b"x")
    assert b"".join(schedule.take(slot) for _ in fetches[1:]) == b"x" * 9
    clock.now += 1
    schedule.take(slot)
    assert len(list(iter(schedule.next_fetch, None))) == window
