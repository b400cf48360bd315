"""The order of fetches, without threads."""

from __future__ import annotations

from entrypoints.fetching.schedule import Fetchable, Limits, Schedule


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
