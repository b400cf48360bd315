"""Work that somebody else waits for, in a thread that does not keep the process from ending.

concurrent.futures has executors, but Python waits for their threads when it ends, however long a store or a Pipe is silent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """What `work` will have given, or raised, from a thread of this name; one that is never waited for is left alone."""
    coming: Future[T] = Future()

    def run() -> None:
        try:
            given = work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            coming.set_exception(error)
        else:
            coming.set_result(given)

    threading.Thread(target=run, name=name, daemon=True).start()
    return coming
