"""The outcome of a job: how it ended, or its state when following it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from launcher.cost import estimate_of_job
from launcher.errors import StoppedError, TrainingFailedError
from launcher.jobs.failures.reasons import likely_cause

ENDED = ("Completed", "Failed", "Stopped")  # values of TrainingJobStatus; the others are InProgress and Stopping
INTERRUPTED = 130  # Ctrl-C ended the following, not the job
_EXIT_CODES = {"Completed": 0, "Failed": TrainingFailedError.exit_code, "Stopped": StoppedError.exit_code}
_SHOWN = (
    "TrainingJobName",
    "TrainingJobArn",
    "TrainingJobStatus",
    "SecondaryStatus",
    "FailureReason",
    "TrainingTimeInSeconds",
    "BillableTimeInSeconds",
    "CreationTime",
    "TrainingStartTime",
    "TrainingEndTime",
    "ModelArtifacts",
    "FinalMetricDataList",
)


@dataclass(frozen=True)
class Outcome:
    """A job as last described, with the metrics and last lines of its log."""

    description: Mapping[str, Any]  # DescribeTrainingJob's answer
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last value of each
    last_lines: tuple[str, ...] = ()  # of all hosts, oldest first; they explain a failure
    interrupted: bool = False

    @property
    def name(self) -> str:
        """Return the job's name."""
        return str(self.description["TrainingJobName"])

    @property
    def status(self) -> str:
        """Return TrainingJobStatus, or Unknown if following ended before the job was described."""
        return str(self.description.get("TrainingJobStatus", "Unknown"))

    @property
    def exit_code(self) -> int:
        """Return the command's exit code: 0 completed, 4 failed, 5 stopped, 130 if the user stopped following it."""
        return INTERRUPTED if self.interrupted else _EXIT_CODES.get(self.status, 0)

    def as_data(self) -> dict[str, Any]:
        """Return the outcome for `--json`: AWS's members, and our own for the rest of the report."""
        shown = {key: _plain(self.description[key]) for key in _SHOWN if self.description.get(key) is not None}
        # JSON has no NaN, which a training that diverged may report.
        metrics = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        data: dict[str, Any] = {**shown, "Metrics": metrics}
        if cause := likely_cause(self.description, self.last_lines):
            data["LikelyCause"] = {"Code": cause.code, "Cause": cause.cause, "Remedy": cause.remedy}
        if estimate := estimate_of_job(self.description, self._region):
            data["EstimatedCost"] = estimate.as_data()
        return {**data, "ExitCode": self.exit_code}

    @property
    def _region(self) -> str | None:
        parts = str(self.description.get("TrainingJobArn", "")).split(":")
        return parts[3] if len(parts) > 3 else None


def _plain(value: Any) -> Any:
    """Return the value in types of JSON."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, datetime) else value
