"""Work in threads that nobody has to wait for: a question that hangs must not keep the command from ending.

A pool of `concurrent.futures` is waited for when Python ends, whatever its threads hang on; daemon threads are not.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def start(work: Callable[[], _Out]) -> Future[_Out]:
    """Do the work in a thread of its own; what it gives or raises comes with the future."""
    outcome: Future[_Out] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where the future is asked
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


class Turns:
    """Lets so many threads go on at once; of those that wait, the one of the lowest rank, and of these the first to come."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: list[tuple[int, int]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    @contextmanager
    def take(self, rank: int) -> Iterator[None]:
        """Wait for the turn, and have it while inside."""
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


def at_once(work: Callable[[_In], _Out], items: Sequence[_In], threads: int = 32) -> Iterator[tuple[_In, Future[_Out]]]:
    """Do the work for each item, several at a time; each item with its outcome, as they are done."""
    outcomes: dict[Future[_Out], _In] = {Future(): item for item in items}
    waiting: queue.SimpleQueue[tuple[Future[_Out], _In]] = queue.SimpleQueue()
    for pair in outcomes.items():
        waiting.put(pair)

    def run() -> None:
        while True:
            try:
                outcome, item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                outcome.set_result(work(item))
            except BaseException as error:  # noqa: BLE001 - raised again where the future is asked
                outcome.set_exception(error)

    for _ in range(min(threads, len(items))):
        start(run)
    for outcome in as_completed(outcomes):
        yield outcomes[outcome], outcome
