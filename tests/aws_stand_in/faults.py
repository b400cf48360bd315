"""Failures of AWS and of the network on command: `count` times, from the n-th matching call on.

Kinds without effect: `reset` (the connection is reset), `html` (the answer is a login page with status 200), `throttle`, `500`,
`expired`, `invalid` (keys), `signature`, `skewed` (clock), `denied` (each refused in the protocol's own form), and `refuse` (with
a `code`, a `message` and a `status` of the test's choice). Kinds in which the call takes effect:
`reset-after` (the connection is reset without an answer), `hang` (the answer is sent after `seconds`), and `500-after` (the answer
is a 500).
"""

from __future__ import annotations

import fnmatch
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from aws_stand_in.errors import Refusal, refusal_of
from aws_stand_in.wire import Call

KINDS = (
    "reset",
    "reset-after",
    "hang",
    "500-after",
    "html",
    "throttle",
    "500",
    "expired",
    "invalid",
    "signature",
    "skewed",
    "denied",
    "refuse",
)
FOREVER = -1


@dataclass
class Fault:
    """One fault, and the calls that it is for."""

    kind: str
    operation: str = "*"  # `sagemaker:CreateTrainingJob`, `s3:*`
    containing: str = ""  # only calls whose path or body holds this text: a bucket's name, a key
    key_id: str = ""  # only calls signed with this access key: `expired` until the caller uses new ones
    nth: int = 1  # the first matching call is 1
    count: int = 1  # how many matching calls in a row fail; FOREVER: until cleared
    seconds: float = 0.0
    code: str = ""
    message: str = ""
    status: int = 400
    seen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Refusal("NoSuchFault", f"kind {self.kind!r} is not one of {', '.join(KINDS)}")

    def is_due(self, call: Call) -> bool:
        """Count the call if it matches, and return whether it fails."""
        if not fnmatch.fnmatchcase(call.name, self.operation):
            return False
        if self.containing and self.containing not in call.target and self.containing.encode() not in call.body:
            return False
        if self.key_id and f"Credential={self.key_id}/" not in call.headers.get("Authorization", ""):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.count == FOREVER or self.seen < self.nth + self.count)

    def refusal(self, call: Call) -> Refusal:
        """The refusal that is sent as the answer."""
        if self.kind == "refuse":
            return Refusal(self.code, self.message, self.status)
        return refusal_of(self.kind.removesuffix("-after"), call.protocol, call.name)


class Faults:
    """All faults and rates; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Remove all faults, and answer whatever hangs."""
        with self._lock:
            self._waiting: list[Fault] = []
            self._rates: dict[str, tuple[float, deque[float]]] = {}
            released = getattr(self, "_released", None)
            self._released = threading.Event()
        if released:
            released.set()

    def add(self, **what: Any) -> None:
        """Add a fault, given Fault's fields."""
        with self._lock:
            self._waiting.append(Fault(**what))

    def limit(self, operation: str, per_second: float) -> None:
        """Throttle calls of an operation (`logs:*`) above this rate per second; 0 lifts the limit."""
        with self._lock:
            self._rates.pop(operation, None)
            if per_second:
                self._rates[operation] = (per_second, deque())

    def due(self, call: Call) -> Fault | None:
        """Return the fault that this call meets, if any. Every fault counts the call."""
        with self._lock:
            due = [fault for fault in self._waiting if fault.is_due(call)]
            if due:
                return due[0]
            now = time.monotonic()
            for pattern, (per_second, times) in self._rates.items():
                if not fnmatch.fnmatchcase(call.name, pattern):
                    continue
                while times and times[0] <= now - 1:
                    times.popleft()
                if len(times) >= per_second:
                    return Fault("throttle")
                times.append(now)
        return None

    def hang(self, seconds: float) -> None:
        """Wait for some seconds, or until the faults are cleared."""
        self._released.wait(seconds)
