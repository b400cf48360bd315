"""What lets a fork wait until no request is in flight."""

from __future__ import annotations

import threading


class Gate:
    """A counter of requests that holds new ones back while the process is forked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False

    def __enter__(self) -> None:
        with self._changed:
            while self._shut:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            if self._shut:
                self._changed.notify_all()

    def shut(self, seconds: float) -> None:
        """Hold new requests back, and wait until none is left, at most so long."""
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: not self._inside, seconds)

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()
