"""Functions that run in daemon threads.

At its exit Python waits for the threads of concurrent.futures' executors, however long a store or a Pipe is silent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
_EXIT_SECONDS = 5.0  # for requests that are under way when Python ends: the S3 client's attempts take 3 s
_IDLE_SECONDS = 0.5  # that a thread waits for more work

_idle: list[SimpleQueue[Callable[[], object]]] = []  # of the threads that wait for work
os.register_at_fork(after_in_child=_idle.clear)


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """Run a function in a daemon thread of this name, and return a Future of what it returns or raises.

    The thread is one that has just finished, or a new one, which takes ten times as long to start.
    """
    future: Future[T] = Future()

    def run() -> None:
        threading.current_thread().name = name
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised by the Future's `result`
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        _idle.pop().put(run)
    except IndexError:
        threading.Thread(target=_run_all, args=([run],), name=name, daemon=True).start()
    return future


def _run_all(work: list[Callable[[], object]]) -> None:
    queue: SimpleQueue[Callable[[], object]] = SimpleQueue()
    while work:
        work.pop()()  # Nothing here keeps what has run.
        _idle.append(queue)
        try:
            work.append(queue.get(timeout=_IDLE_SECONDS))
        except Empty:
            try:
                _idle.remove(queue)
            except ValueError:  # It was taken at the last moment.
                work.append(queue.get())


@cache
def exit_deadline() -> float:
    """Return when exit handlers stop waiting for threads, as time.monotonic() counts: they share one wait."""
    return time.monotonic() + _EXIT_SECONDS
