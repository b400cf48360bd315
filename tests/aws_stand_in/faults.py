"""What AWS and the network do on a bad day, on command: at the n-th matching call from now, so many times.

Kinds: `reset` (the connection is reset before the call has an effect), `reset-after` (it has its effect, then the connection is
reset without an answer), `hang` (it has its effect, and the answer comes after `seconds`), `500-after` (it has its effect, and a
500 is the answer), `truncated` (it has its effect, and half of the answer's body arrives), `html` (a login page with status 200
answers in the service's place, without effect), `throttle`, `500`, `expired`, `denied` (each refused in the protocol's own form,
without effect), and `refuse` (with a `code`, a `message` and a `status` of the test's own).
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
    "truncated",
    "html",
    "throttle",
    "500",
    "expired",
    "denied",
    "refuse",
)
FOREVER = -1


@dataclass
class Fault:
    """One fault that waits for its call."""

    kind: str
    operation: str = "*"  # `sagemaker:CreateTrainingJob`, `s3:*`
    containing: str = ""  # only calls whose path or body holds this text: a bucket's name, a key
    key_id: str = ""  # only calls signed with this access key: `expired` until the caller comes with new ones
    nth: int = 1  # the first matching call is 1
    count: int = 1  # so many matching calls in a row; FOREVER until cleared
    seconds: float = 0.0
    code: str = ""
    message: str = ""
    status: int = 400
    seen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Refusal("NoSuchFault", f"kind {self.kind!r} is none of {', '.join(KINDS)}")

    def is_due(self, call: Call) -> bool:
        """Count the call, if it matches; whether it is one that fails."""
        if not fnmatch.fnmatchcase(call.name, self.operation):
            return False
        if self.containing and self.containing not in call.target and self.containing.encode() not in call.body:
            return False
        if self.key_id and f"Credential={self.key_id}/" not in call.headers.get("Authorization", ""):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.count == FOREVER or self.seen < self.nth + self.count)

    def refusal(self, call: Call) -> Refusal:
        """What is said instead of an answer."""
        if self.kind == "refuse":
            return Refusal(self.code, self.message, self.status)
        return refusal_of(self.kind.removesuffix("-after"), call.protocol, call.name)


class Faults:
    """All faults that wait, and the rates that hold; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """No more faults; whatever hangs is answered now."""
        with self._lock:
            self._waiting: list[Fault] = []
            self._rates: dict[str, tuple[float, deque[float]]] = {}
            released = getattr(self, "_released", None)
            self._released = threading.Event()
        if released:
            released.set()

    def add(self, **what: Any) -> None:
        """A fault more, by Fault's fields."""
        with self._lock:
            self._waiting.append(Fault(**what))

    def limit(self, operation: str, per_second: float) -> None:
        """At most so many calls of an operation (`logs:*`) in any second; those beyond are throttled. 0 lifts the limit."""
        with self._lock:
            self._rates.pop(operation, None)
            if per_second:
                self._rates[operation] = (per_second, deque())

    def due(self, call: Call) -> Fault | None:
        """The fault that befalls this call, if any. Every waiting fault counts it."""
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
        """Wait so long, or until the faults are cleared."""
        self._released.wait(seconds)
