"""Daemon threads for calls that may hang: a hanging call must not keep the command from ending.

At exit Python waits for the threads of a `concurrent.futures` pool, whatever they hang on; it does not wait for daemon threads.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def start(work: Callable[[], _Out]) -> Future[_Out]:
    """Run a function in a daemon thread and return a Future."""
    outcome: Future[_Out] = Future()
    threading.Thread(target=settle, args=(outcome, work), daemon=True).start()
    return outcome


def settle(outcome: Future[_Out], work: Callable[[], _Out]) -> None:
    """Put what `work` returns, or raises, into a future."""
    try:
        outcome.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again by Future.result
        outcome.set_exception(error)


class Turns:
    """Limit how many threads work at the same time.

    Of the waiting threads the one with the lowest rank is next, and among equals the first to come.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: list[tuple[int, int]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    @contextmanager
    def take(self, rank: int) -> Iterator[None]:
        """Wait for a turn and hold it inside the block."""
        with self._changed:
            mine = (rank, next(self._numbers))
            heapq.heappush(self._waiting, mine)
            self._changed.wait_for(lambda: self._free and self._waiting[0] == mine)
            heapq.heappop(self._waiting)
            self._free -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()


def concurrently(
    work: Callable[[_In], _Out], items: Sequence[_In], threads: int = 32
) -> Iterator[tuple[_In, Future[_Out]]]:
    """Run `work` for each item in several threads, and yield each item with its future as it is done."""
    outcomes: dict[Future[_Out], _In] = {Future(): item for item in items}
    waiting = deque(outcomes)

    def run() -> None:
        with suppress(IndexError):  # no future is left
            while True:
                outcome = waiting.popleft()
                settle(outcome, partial(work, outcomes[outcome]))

    for _ in range(min(threads, len(items))):
        start(run)
    for outcome in as_completed(outcomes):
        yield outcomes[outcome], outcome
