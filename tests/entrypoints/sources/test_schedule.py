"""The order of fetches, without threads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sagemaker_channels.sources import schedule as module
from sagemaker_channels.sources.schedule import Fetchable, Limits, Schedule

MB = 1_000_000


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
    pieces = list(iter(schedule.next_piece, None))
    for piece in pieces:
        schedule.put(piece, Object().fetch(piece.start, piece.size))
    [slot] = schedule.waiting
    assert [schedule.take(slot) for _ in pieces] == [b"\0"] * 4
    assert schedule.take(slot) is None


@pytest.mark.parametrize(
    ("delay", "requests", "held"),
    [
        (0.0004, 8, 10),
        (0.001, 10, 10),
        (0.0064, 64, 10),
        (0.012, 64, 12),
        (1.0, 64, 20),
    ],
)
def test_requests_and_bytes_under_way_follow_the_stores_delay(
    monkeypatch: pytest.MonkeyPatch, delay: float, requests: int, held: int
) -> None:
    """Near by, more requests only wait for the processor; far away, fewer leave the reader waiting."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    schedule = Schedule(Limits(held_bytes=10 * MB, far_bytes=20 * MB, piece_bytes=MB), f"a store {delay} s away")
    assert schedule.most_requests() == 64
    source = Object()
    source.size = 100 * MB
    schedule.add(source)
    for _ in range(32):
        piece = schedule.next_piece()
        assert piece is not None
        clock.now = delay
        schedule.put(piece, bytes(MB))
        schedule.take(piece.slot)
        clock.now = 0
    assert schedule.most_requests() == requests
    assert len(list(iter(schedule.next_piece, None))) == held
