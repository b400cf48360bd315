"""What is printed of a job: its secondary statuses as they change, and after its end the result.

The result is the duration, cost, outputs, and the likely cause of a failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from launcher.console import Console, duration
from launcher.cost import estimate_of_job
from launcher.jobs.failures.reasons import headline, likely_cause
from launcher.jobs.logs.streams import hosts_of
from launcher.jobs.outcome import Outcome

_COLOURS = {"Completed": "green", "Failed": "red"}


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


def report(outcome: Outcome, console: Console, region: str) -> None:
    """Print how the job ended."""
    console.say()
    console.say(f"{outcome.name}: {outcome.status}", _COLOURS.get(outcome.status, "yellow"))
    for title, text in _facts(outcome, region):
        console.say(f"  {title:10} {text}")


def _facts(outcome: Outcome, region: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of the report as (title, text), the most important last, just above the prompt."""
    description = outcome.description
    yield from _time_and_cost(description, region)
    yield from _left_behind(description)
    final = {one["MetricName"]: one["Value"] for one in description.get("FinalMetricDataList") or ()}
    for name, value in {**final, **outcome.metrics}.items():
        yield "metric", f"{name} = {value:.6g}" if math.isfinite(value) else f"{name} = {value}"
    if reason := description.get("FailureReason"):
        yield "reason", headline(reason)
    elif outcome.status == "Stopped" and (secondary := description.get("SecondaryStatus")) != "Stopped":
        yield "reason", str(secondary)
    if cause := likely_cause(description, outcome.last_lines):
        yield "likely", f"{cause.cause} [{cause.code}]"
        yield "remedy", cause.remedy


def _time_and_cost(description: Mapping[str, Any], region: str) -> Iterator[tuple[str, str]]:
    trained, billed = description.get("TrainingTimeInSeconds"), description.get("BillableTimeInSeconds")
    if trained is not None:
        yield "trained", _length(trained)
    if billed is not None:
        count = len(hosts_of(description))
        hosts = f" on each of {count} hosts" if count > 1 else ""
        saved = ""
        if description.get("EnableManagedSpotTraining") and trained:
            # The formula in the documentation of BillableTimeInSeconds.
            saved = f"; spot saved {max(0.0, 1 - billed / trained):.0%}"
        yield "billed", f"{_length(billed)}{hosts}{saved}"
        if estimate := estimate_of_job(description, region):
            yield "cost", estimate.text


def _length(seconds: int) -> str:
    """Return `45 s` or, with the seconds that are billed, `3 min 20 s (200 s)`."""
    return duration(seconds) if seconds < 60 else f"{duration(seconds)} ({seconds} s)"


def _left_behind(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if model := (description.get("ModelArtifacts") or {}).get("S3ModelArtifacts"):
        yield "model", model
    if output := (description.get("OutputDataConfig") or {}).get("S3OutputPath"):
        yield "output", f"{output.rstrip('/')}/{description['TrainingJobName']}/output/"
    if checkpoints := (description.get("CheckpointConfig") or {}).get("S3Uri"):
        yield "saved", f"checkpoints in {checkpoints}"
