"""How long tests wait for what must happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 240.0  # seconds after which something is taken to hang; pytest's own limit for a whole test is longer

Value = TypeVar("Value")


def wait_for(condition: Callable[[], Value]) -> Value:
    """Return the condition's value as soon as it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return value
