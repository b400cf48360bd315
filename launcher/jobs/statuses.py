"""A job's secondary statuses as they change: what it is doing, since when, and how long the last one took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from launcher.console import duration


class Statuses:
    """The status lines of a job: each description prints only its new transitions."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say  # (line, colour)
        self._shown = 0  # transitions
        self._message = ""  # of the last of them; it changes while the status stays

    def show(self, description: Mapping[str, Any]) -> bool:
        """Print new transitions and messages, and return whether there was a new transition."""
        before = self._shown
        transitions = description.get("SecondaryStatusTransitions") or []
        for index, transition in enumerate(transitions):
            message = transition.get("StatusMessage") or ""
            is_new = index >= self._shown
            if is_new or (index == self._shown - 1 and message != self._message):
                took = _took(transitions[index - 1], transition) if is_new and index else ""
                self._say(f"{_clock(transition)}{transition['Status']:11} {message}{took}".rstrip(), "cyan")
                self._message = message
                self._shown = index + 1
        return self._shown > before


def _took(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    begun, ended = before.get("StartTime"), before.get("EndTime") or after.get("StartTime")
    if begun is None or ended is None:
        return ""
    return f" ({before['Status']} took {duration(max(0.0, (ended - begun).total_seconds()))})"


def _clock(transition: Mapping[str, Any]) -> str:
    at = transition.get("StartTime")
    return f"{at.astimezone():%H:%M:%S} " if at else ""
