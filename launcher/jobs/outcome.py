"""A job's statuses as they change, and its outcome: how it ended, or its state when following it ended; also of a local run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from launcher.code.git import commit_of
from launcher.columns import STATUS_COLOURS
from launcher.console import Console, counted, duration, json_timestamp, timestamp
from launcher.cost.show import JobCost, billed_seconds, estimate_of_job
from launcher.errors import INTERRUPTED, StoppedError, TrainingFailedError
from launcher.jobs.causes import Cause, headline, likely_cause
from launcher.jobs.lines import Line, host_names
from launcher.jobs.waits import ChannelWaits, as_data
from sagemaker_channels.start.failure import own_frame

# Values of TrainingJobStatus; the others are InProgress, Stopping and Deleting.
ENDED = ("Completed", "Failed", "Stopped")
_EXIT_CODES = {"Completed": 0, "Failed": TrainingFailedError.exit_code, "Stopped": StoppedError.exit_code}
_SHOWN = (
    *("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "SecondaryStatus", "FailureReason"),
    *("TrainingTimeInSeconds", "BillableTimeInSeconds", "CreationTime", "TrainingStartTime", "TrainingEndTime"),
    *("ModelArtifacts", "FinalMetricDataList", "SecondaryStatusTransitions", "WarmPoolStatus", "ProgressInfo"),
    *("OutputModelPackageArn", "MlflowConfig", "MlflowDetails", "ServiceJob", "Tags"),
)
_CONSOLES = {"cn": "console.amazonaws.cn", "us-gov": "console.amazonaws-us-gov.com"}  # by partition, without aws-


class Statuses:
    """The lines for a job's secondary statuses: each description prints only its new transitions and messages."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say  # (line, colour)
        self._shown: dict[Any, str] = {}  # the message of each transition, which changes while the status stays

    def show(self, description: Mapping[str, Any]) -> None:
        transitions = description.get("SecondaryStatusTransitions") or []
        for index, transition in enumerate(transitions):
            start, status = transition.get("StartTime"), transition["Status"]
            message = transition.get("StatusMessage") or ""
            if self._shown.get((start, status)) == message:
                continue
            clock = f"{timestamp(start)} " if start else ""
            is_new = (start, status) not in self._shown
            took = _duration_of(transitions[index - 1], start) if index and is_new else ""
            self._say(f"{clock}{status:11} {message}{took}".rstrip(), "cyan")
            self._shown[start, status] = message


def _duration_of(status: Mapping[str, Any], next_start: datetime | None) -> str:
    begun, ended = status.get("StartTime"), status.get("EndTime") or next_start
    if begun is None or ended is None:
        return ""
    return f" ({status['Status']} took {duration(max(0.0, (ended - begun).total_seconds()))})"


@dataclass(frozen=True, repr=False)
class Outcome:
    """A job as last described, with the metrics and last lines of its log; of a local run, its result."""

    description: Mapping[str, Any]  # DescribeTrainingJob's answer; of a local run its result.json, in the same words
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last value of each
    last_lines: tuple[Line, ...] = ()  # of all hosts, oldest first; they explain a failure
    interrupted: bool = False
    waits: tuple[ChannelWaits, ...] = ()  # what its training loops wait for
    folder: Path | None = None  # of a local run
    local_exit_code: int | None = None  # of a local run, or of the shell in one
    seen: datetime = field(default_factory=lambda: datetime.now(timezone.utc))  # when it was described

    def __repr__(self) -> str:
        reason = f": {headline(self.reason)}" if self.reason else ""
        model = f", model {self.model}" if self.model else ""
        return f"<Outcome of {self.name}: {self.status}{reason}{model}>"

    @property
    def name(self) -> str:
        """TrainingJobName."""
        return str(self.description["TrainingJobName"])

    @property
    def status(self) -> str:
        """TrainingJobStatus, or Unknown if following ended before the job was described."""
        return str(self.description.get("TrainingJobStatus", "Unknown"))

    @property
    def reason(self) -> str:
        """FailureReason; empty if the job has not failed."""
        return str(self.description.get("FailureReason") or "")

    @property
    def model(self) -> str | None:
        """The model that the job has stored: its URI, or of a local run its path."""
        return (self.description.get("ModelArtifacts") or {}).get("S3ModelArtifacts")

    def checked(self) -> Outcome:
        """Return it; raise TrainingFailedError if the job has failed, and StoppedError if it was stopped, with the reason."""
        if self.status in ("Failed", "Stopped"):
            error = TrainingFailedError if self.status == "Failed" else StoppedError
            raise error(f"{self.name}: {self.status}" + (f": {headline(self.reason)}" if self.reason else ""))
        return self

    @property
    def exit_code(self) -> int:
        """The command's exit code: 0 completed, 4 failed, 5 stopped, 130 if the user stopped following it."""
        if self.local_exit_code is not None:
            return self.local_exit_code
        return INTERRUPTED if self.interrupted else _EXIT_CODES.get(self.status, 0)

    @property
    def region(self) -> str | None:
        """The job's region; None for a local run."""
        parts = str(self.description.get("TrainingJobArn", "")).split(":")
        return parts[3] if len(parts) > 3 else None

    @property
    def cost(self) -> JobCost | None:
        """The estimated cost, of a running job so far; None if it is not billed yet, or not by the instance."""
        return estimate_of_job(self.description, self.region, now=self.seen)

    @property
    def console_url(self) -> str | None:
        """The job's page in the AWS console; None for a local run."""
        _, partition, *rest = str(self.description.get("TrainingJobArn", ":")).split(":")
        if not rest:
            return None
        place = f"{self.region}.{_CONSOLES.get(partition.removeprefix('aws-'), 'console.aws.amazon.com')}"
        return f"https://{place}/sagemaker/home?region={self.region}#/jobs/{self.name}"

    @property
    def cause(self) -> Cause | None:
        """The likely cause of a failure; of a local run that which was found at its end."""
        if "Folder" in self.description:
            known = self.description.get("LikelyCause")
            return Cause(known["Code"], known["Cause"], known["Remedy"]) if known else None
        return likely_cause(self.description, self.last_lines)

    def as_data(self) -> dict[str, Any]:
        """Return the outcome for `--json`: AWS's members, and our own for the rest of the report."""
        shown = {key: plain_data(self.description[key]) for key in _SHOWN if self.description.get(key) is not None}
        data: dict[str, Any] = {**shown, "Metrics": plain_data(self.metrics)}
        if cause := self.cause:
            data["LikelyCause"] = cause.as_data()
        if estimate := self.cost:
            data["EstimatedCost"] = estimate.as_data()
        if url := self.console_url:
            data["ConsoleUrl"] = url
        return {**data, **as_data(self.waits), "ExitCode": self.exit_code}

    def show(self, console: Console, more: Iterable[tuple[str, str]] = ()) -> None:
        """Print how the job ended: duration, cost, outputs, `more`, and the likely cause of a failure just above the prompt."""
        console.say()
        console.say(f"{self.name}: {self.status}", STATUS_COLOURS[self.status])
        for title, text in self.rows(more):
            console.say(f"  {title:10} {text}")

    def rows(self, more: Iterable[tuple[str, str]] = ()) -> Iterator[tuple[str, str]]:
        """Yield what the report shows, as (title, text)."""
        yield from (*self._time_and_cost(), *self._outputs(), *more, *self._end())

    def _outputs(self) -> Iterator[tuple[str, str]]:
        description = self.description
        if self.model:
            yield "model", self.model
        if job := description.get("ServiceJob"):
            more = f", attempt {job['Attempts']}, to which time and cost refer" if job["Attempts"] > 1 else ""
            yield "queue", f"{job['Queue']}: {job['Name']} ({job['Status']}){more}"
        if output := (description.get("OutputDataConfig") or {}).get("S3OutputPath"):
            yield "output", f"{output.rstrip('/')}/{self.name}/output/"
        if checkpoints := (description.get("CheckpointConfig") or {}).get("S3Uri"):
            yield "saved", f"checkpoints in {checkpoints}"
        if commit := commit_of(description.get("Tags")):
            yield "code", commit
        if package := description.get("OutputModelPackageArn"):
            yield "package", package
        if server := (description.get("MlflowConfig") or {}).get("MlflowResourceArn"):
            named = {**description["MlflowConfig"], **(description.get("MlflowDetails") or {})}
            words = {"experiment": "MlflowExperimentName", "run": "MlflowRunName", "run ID": "MlflowRunId"}
            yield (
                "mlflow",
                ", ".join([server, *(f"{word} {named[key]}" for word, key in words.items() if key in named)]),
            )
        if url := self.console_url:
            yield "console", url

    def _end(self) -> Iterator[tuple[str, str]]:
        final = {one["MetricName"]: one["Value"] for one in self.description.get("FinalMetricDataList") or ()}
        for name, value in {**final, **self.metrics}.items():
            yield "metric", f"{name} = {value:.6g}"
        for waits in self.waits:
            yield "waits", str(waits)
        if self.reason:
            yield "reason", headline(self.reason)
            if frame := own_frame(self.reason):
                yield "at", frame
        elif self.status == "Stopped" and (secondary := self.description.get("SecondaryStatus")) != "Stopped":
            yield "reason", str(secondary)
        if cause := self.cause:
            yield "likely", f"{cause.cause} [{cause.code}]"
            yield "remedy", cause.remedy

    def _time_and_cost(self) -> Iterator[tuple[str, str]]:
        description = self.description
        trained, billed = description.get("TrainingTimeInSeconds"), billed_seconds(description, self.seen)
        count = len(host_names(description))
        hosts = f" on each of {count} hosts" if count > 1 else ""
        last = (description.get("SecondaryStatusTransitions") or [{}])[-1]
        if self.status not in ENDED and (begun := last.get("StartTime")):
            age = duration(max(0.0, (self.seen - begun).total_seconds()))
            yield "now", f"{last['Status']} for {age}: {last.get('StatusMessage') or 'AWS gives no reason'}"
        if trained is not None:
            statuses = [each["Status"] for each in description.get("SecondaryStatusTransitions") or ()]
            times = statuses.count("Interrupted")
            yield "trained", _length(trained) + (f", interrupted {counted(times, 'time')}" if times else "")
        if billed is not None:
            # The formula in the documentation of BillableTimeInSeconds.
            ended = "BillableTimeInSeconds" in description
            is_spot = description.get("EnableManagedSpotTraining") and ended
            saved = f"; spot saved {max(0.0, 1 - billed / trained):.0%}" if is_spot and trained else ""
            yield "billed", f"{_length(billed)}{'' if ended else ' so far'}{hosts}{saved}"
            if estimate := self.cost:
                yield "cost", estimate.text
        if pool := description.get("WarmPoolStatus"):
            by = f" by {pool['ReusedByJob']}" if pool.get("ReusedByJob") else ""
            kept = pool.get("ResourceRetainedBillableTimeInSeconds")
            yield "warm pool", f"{pool['Status']}{by}" + (f", billed {_length(kept)}{hosts}" if kept else "")


def _length(seconds: float) -> str:
    """Return `45 s` or, with the seconds that are billed, `3 min 20 s (200 s)`."""
    return f"{seconds:g} s" if seconds < 60 else f"{duration(seconds)} ({seconds:g} s)"


def plain_data(value: Any) -> Any:
    """Return the value in types of JSON, which has no NaN."""
    if isinstance(value, Mapping):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_data(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json_timestamp(value) if isinstance(value, datetime) else value
