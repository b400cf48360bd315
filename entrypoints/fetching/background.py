"""Functions that run in daemon threads.

At its exit Python waits for the threads of concurrent.futures' executors, however long a store or a Pipe is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import TypeVar

T = TypeVar("T")
_EXIT_SECONDS = 5.0  # for requests that are under way when Python ends: the S3 client's attempts take 3 s


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """Run a function in a daemon thread of this name, and return a Future of what it returns or raises."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised by the Future's `result`
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


@cache
def exit_deadline() -> float:
    """Return when exit handlers stop waiting for threads, as time.monotonic() counts: they share one wait."""
    return time.monotonic() + _EXIT_SECONDS
