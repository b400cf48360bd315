"""Daemon threads for calls that may hang: a hanging call must not keep the command from ending.

At exit Python waits for the threads of a `concurrent.futures` pool, whatever they hang on; it does not wait for daemon threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress
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
