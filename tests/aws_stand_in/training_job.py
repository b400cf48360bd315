"""One training job: its request as received, and its history.

Sources: SageMaker's API reference, DescribeTrainingJob (SecondaryStatus, SecondaryStatusTransition, TrainingStartTime,
BillableTimeInSeconds, WarmPoolStatus) and the developer guide on managed spot training and on warm pools.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from aws_stand_in.errors import Refusal

_MESSAGES = {
    "Starting": "Preparing the instances for training",
    "Pending": "Preparing the instances for training",
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Interrupted": "Training job was interrupted: insufficient spot capacity",
    "Restarting": "Restarting the training job",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "MaxWaitTimeExceeded": "Training job exceeded MaxWaitTimeInSeconds provided",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
}
# Secondary statuses that end a job, and the status that it then has.
ENDS = {
    "Completed": "Completed",
    "Failed": "Failed",
    "Stopped": "Stopped",
    "MaxRuntimeExceeded": "Stopped",
    "MaxWaitTimeExceeded": "Stopped",
}
_DEFAULTS: dict[str, Any] = {
    "EnableNetworkIsolation": False,
    "EnableInterContainerTrafficEncryption": False,
    "EnableManagedSpotTraining": False,
    "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
}
_CHANNEL_DEFAULTS = {"CompressionType": "None", "RecordWrapperType": "None"}


@dataclass(frozen=True)
class Step:
    """One step of a script: what happens to a job, and when."""

    status: str | None = None  # a secondary status; None changes only what Describe returns
    after: float | None = None  # seconds after creation (after the stop, in `on_stop`); None waits for a test's `step`
    message: str | None = None
    reason: str | None = None  # FailureReason
    metrics: dict[str, float] = field(default_factory=dict)  # FinalMetricDataList
    billable: int | None = None  # BillableTimeInSeconds, if it differs from the training time
    describe: dict[str, Any] = field(default_factory=dict)  # members of Describe's answer to replace


@dataclass
class Job:
    """A training job."""

    request: dict[str, Any]
    arn: str
    created: float
    script: list[Step] = field(default_factory=list)
    on_stop: list[Step] = field(default_factory=list)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    modified: float = 0.0
    started: float | None = None
    ended: float | None = None

    def __post_init__(self) -> None:
        self.tags = {tag["Key"]: tag["Value"] for tag in self.request.get("Tags", [])}
        self.apply(Step("Starting"), self.created)

    @property
    def name(self) -> str:
        """TrainingJobName."""
        name: str = self.request["TrainingJobName"]
        return name

    @property
    def secondary(self) -> str:
        """SecondaryStatus."""
        status: str = self.transitions[-1]["Status"]
        return status

    @property
    def status(self) -> str:
        """TrainingJobStatus."""
        return ENDS.get(self.secondary, "Stopping" if self.secondary == "Stopping" else "InProgress")

    def settle(self, now: float) -> None:
        """Run all steps of the script that are due."""
        while self.script and self.script[0].after is not None and self.created + self.script[0].after <= now:
            step = self.script.pop(0)
            self.apply(step, self.created + (step.after or 0.0))

    def step(self, now: float) -> None:
        """Run the script's next step now."""
        if not self.script:
            raise Refusal("NoStep", f"the script of {self.name} has no step left", 409)
        self.apply(self.script.pop(0), now)

    def apply(self, step: Step, at: float) -> None:
        """Run a step. Raises Refusal if the job has ended."""
        if step.status is not None:
            self._enter(step.status, step.message, at)
        elif step.message is not None:
            self.transitions[-1]["StatusMessage"] = step.message
        self.modified = at
        if step.reason is not None:
            self.extras["FailureReason"] = step.reason
        if step.metrics:
            listed = [{"MetricName": name, "Value": value, "Timestamp": at} for name, value in step.metrics.items()]
            self.extras["FinalMetricDataList"] = listed
        if step.billable is not None:
            self.extras["BillableTimeInSeconds"] = step.billable
        self.extras |= step.describe

    def _enter(self, status: str, message: str | None, at: float) -> None:
        if status not in _MESSAGES:
            raise Refusal("NoSuchStatus", f"{status!r} is not one of {', '.join(_MESSAGES)}")
        message = _MESSAGES[status] if message is None else message
        if self.transitions:
            last = self.transitions[-1]
            if last["Status"] in ENDS:
                raise Refusal("Over", f"{self.name} is {last['Status']} and cannot become {status}", 409)
            if last["Status"] == status:
                last["StatusMessage"] = message
                return
            last["EndTime"] = at
        self.transitions.append({"Status": status, "StartTime": at, "StatusMessage": message})
        if status in ("Downloading", "Training") and self.started is None:
            self.started = at
        if status in ENDS:
            self.ended, self.transitions[-1]["EndTime"] = at, at

    def stop(self, now: float) -> None:
        """Stop the job. Raises Refusal if it is stopping or has ended."""
        if self.status != "InProgress":
            message = f"The request was rejected because the training job is in status {self.status}."
            raise Refusal("ValidationException", message)
        self.apply(Step("Stopping"), now)
        offset = now - self.created
        self.script = [
            Step(**{**vars(step), "after": None if step.after is None else offset + step.after})
            for step in self.on_stop
        ]

    def describe(self, now: float) -> dict[str, Any]:
        """Return DescribeTrainingJob's answer: the request without its tags, with AWS's defaults, and the job's history."""
        answer = copy.deepcopy({**_DEFAULTS, **{key: value for key, value in self.request.items() if key != "Tags"}})
        answer["InputDataConfig"] = [{**_CHANNEL_DEFAULTS, **channel} for channel in answer.get("InputDataConfig", [])]
        if not answer["InputDataConfig"]:
            del answer["InputDataConfig"]
        answer["OutputDataConfig"] = {"KmsKeyId": "", "CompressionType": "GZIP", **answer["OutputDataConfig"]}
        answer |= self.summary()
        answer |= {"SecondaryStatus": self.secondary, "SecondaryStatusTransitions": self.transitions}
        answer["ProfilingStatus"] = "Enabled" if "ProfilerConfig" in answer else "Disabled"
        if self.started is not None:
            answer["TrainingStartTime"] = self.started
            answer["TrainingTimeInSeconds"] = round((now if self.ended is None else self.ended) - self.started)
            if self.ended is not None:
                answer["BillableTimeInSeconds"] = round(self.ended - self.started - self._interrupted())
        if self.secondary == "Completed":
            folder = f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
            model = "model" if answer["OutputDataConfig"]["CompressionType"] == "NONE" else "model.tar.gz"
            answer["ModelArtifacts"] = {"S3ModelArtifacts": f"{folder}/{model}"}
        return answer | self.extras

    def summary(self) -> dict[str, Any]:
        """Return this job's entry in ListTrainingJobs' answer."""
        answer = {
            "TrainingJobName": self.name,
            "TrainingJobArn": self.arn,
            "CreationTime": self.created,
            "LastModifiedTime": self.modified,
            "TrainingJobStatus": self.status,
            "SecondaryStatus": self.secondary,
        }
        if self.ended is not None:
            answer["TrainingEndTime"] = self.ended
        keep = self.request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds")
        if keep and self.secondary == "Completed":
            answer["WarmPoolStatus"] = {"Status": "Available"}
        if "WarmPoolStatus" in self.extras:
            answer["WarmPoolStatus"] = self.extras["WarmPoolStatus"]
        return answer

    def _interrupted(self) -> float:
        """Return the seconds between spot interruptions and the next training, which are not billed."""
        return sum(
            float(entry.get("EndTime", entry["StartTime"]) - entry["StartTime"])
            for entry in self.transitions
            if entry["Status"] in ("Interrupted", "Restarting")
        )
