"""Functions that run in daemon threads.

Python waits for the threads of concurrent.futures' executors when it ends, however long a store or a Pipe is silent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """Run a function in a daemon thread.

    Args:
        work: The function.
        name: The thread's name.

    Returns:
        A Future of what the function returns or raises.
    """
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
