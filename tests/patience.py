"""How long tests wait for what must happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

PATIENCE = 240.0  # seconds after which something is taken to hang; pytest's own limit for a whole test is longer

Value = TypeVar("Value")


def in_threads(work: Callable[[int], Value], count: int) -> list[Value]:
    """Return what the function returns for the numbers from 0, all at the same time."""
    pool = ThreadPoolExecutor(count)
    try:
        return list(pool.map(work, range(count), timeout=PATIENCE))
    finally:
        pool.shutdown(wait=False)  # a thread that hangs fails the test


def wait_for(condition: Callable[[], Value]) -> Value:
    """Return the condition's value as soon as it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return value
