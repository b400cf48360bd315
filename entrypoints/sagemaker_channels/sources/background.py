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
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Callable[[], object]
_EXIT_SECONDS = 3.0  # for requests that are under way when Python ends, and reads of a file system that hangs
_IDLE_SECONDS = 0.5  # that a thread waits for more work

leaving = threading.Event()  # Python is exiting: no caller waits for bytes
_idle: list[SimpleQueue[tuple[Work, str]]] = []  # of the threads that wait for work
os.register_at_fork(after_in_child=_idle.clear)


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

    run_in_thread(run, name)
    return future


def run_in_thread(work: Work, name: str) -> None:
    """Run a function in a daemon thread: one that has just finished, or a new one, which takes ten times as long to start."""
    try:
        _idle.pop().put((work, name))
    except IndexError:
        threading.Thread(target=_run_all, args=([(work, name)],), name=name, daemon=True).start()


def _run_all(todo: list[tuple[Work, str]]) -> None:
    queue: SimpleQueue[tuple[Work, str]] = SimpleQueue()
    while todo:
        threading.current_thread().name = todo[0][1]
        todo.pop()[0]()  # Nothing here keeps what has run.
        _idle.append(queue)
        try:
            todo.append(queue.get(timeout=_IDLE_SECONDS))
        except Empty:
            try:
                _idle.remove(queue)
            except ValueError:  # It was taken at the last moment.
                todo.append(queue.get())


@cache
def exit_deadline() -> float:
    """End waits for bytes; return when exit handlers stop waiting for threads, as time.monotonic() counts: they share one wait."""
    leaving.set()
    return time.monotonic() + _EXIT_SECONDS
