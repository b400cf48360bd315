"""SageMaker's training jobs: create, describe, list, stop, tags; and training plans. Everything else of SageMaker is moto's.

A job stays `Starting` until a test moves it on, by hand (`sagemaker/jobs/NAME`) or by a script that was set before or after its
creation (`sagemaker/script`). Its name is never free again, as at AWS; but here over all regions.

Sources: SageMaker's API reference (CreateTrainingJob, ListTrainingJobs, StopTrainingJob, AddTags). The wording of ResourceInUse
and of "Requested resource not found." is that of AWS's answers as people have quoted them.
"""

from __future__ import annotations

import base64
import fnmatch
from collections.abc import Callable, Iterator
from typing import Any

from aws_stand_in import members
from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.training_job import Job, Step
from aws_stand_in.wire import Call

_ACCOUNT = "123456789012"
_OWN = (
    "CreateTrainingJob",
    "DescribeTrainingJob",
    "ListTrainingJobs",
    "StopTrainingJob",
    "AddTags",
    "ListTags",
    "DeleteTags",
    "DescribeTrainingPlan",
)


class TrainingJobs:
    """The jobs of the account, in the order of their creation."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.clear()

    def clear(self) -> None:
        """Forget all jobs and scripts."""
        self._jobs: dict[str, Job] = {}
        self._plans: dict[str, dict[str, Any]] = {}
        self._scripts: list[tuple[str, list[Step], list[Step]]] = []

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """The answer of an operation on training jobs; None: moto's. Raises Refusal."""
        said = call.parameters
        if call.operation not in _OWN:
            return None
        if "Tags" in call.operation and ":training-job/" not in said.get("ResourceArn", ""):
            return None
        members.check(call)
        for job in self._jobs.values():
            job.settle(self._now())
        if call.operation == "CreateTrainingJob":
            return self._create(said, call.region)
        if call.operation == "ListTrainingJobs":
            return self._list(said)
        if call.operation == "DescribeTrainingPlan":
            if said["TrainingPlanName"] not in self._plans:
                raise Refusal("ResourceNotFound", "Requested resource not found.")
            return self._plans[said["TrainingPlanName"]]
        if "Tags" in call.operation:
            return self._tags(call.operation, said)
        job = self._find(said["TrainingJobName"])
        if call.operation == "DescribeTrainingJob":
            return job.describe(self._now())
        job.stop(self._now())
        return {}

    def control(self, name: str, said: dict[str, Any]) -> Any:
        """`jobs/NAME` moves a job on, `jobs/NAME/step` lets its script do so; `script` is for jobs whose name fits a pattern.

        `plan` adds a training plan with the members of DescribeTrainingPlan's answer.
        """
        kind, _, rest = name.partition("/")
        if kind == "plan":
            self._plans[said["TrainingPlanName"]] = said
            return {}
        if kind == "script":
            steps = [Step(**step) for step in said.get("steps", [])]
            on_stop = [Step(**step) for step in said.get("on_stop", [])]
            pattern = said.get("name", "*")
            self._scripts.insert(0, (pattern, steps, on_stop))
            for job in self._jobs.values():
                if fnmatch.fnmatchcase(job.name, pattern):
                    job.script, job.on_stop = list(steps), list(on_stop)
            return {}
        if name == "requests":
            return [job.request for job in self._jobs.values()]
        if kind != "jobs" or not rest:
            raise Refusal("NoSuchControl", f"sagemaker/{name} is nothing that can be ordered", 404)
        job_name, _, order = rest.partition("/")
        job = self._find(job_name)
        job.settle(self._now())
        if order == "step":
            job.step(self._now())
        elif said:
            step = Step(**said)
            job.apply(step, self._now() if step.after is None else job.created + step.after)
        return job.describe(self._now())

    def _create(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        name = request["TrainingJobName"]
        if name in self._jobs:
            why = (
                "Training job names must be unique within an AWS account and region, and a training job with this name"
            )
            raise Refusal("ResourceInUse", f"{why} already exists ({self._jobs[name].arn})")
        job = Job(request, f"arn:aws:sagemaker:{region}:{_ACCOUNT}:training-job/{name}", self._now())
        for pattern, steps, on_stop in self._scripts:
            if fnmatch.fnmatchcase(name, pattern):
                job.script, job.on_stop = list(steps), list(on_stop)
                break
        self._jobs[name] = job
        return {"TrainingJobArn": job.arn}

    def _find(self, name: str) -> Job:
        job = self._jobs.get(name.rpartition("/")[2])
        if job is None:
            raise Refusal("ValidationException", "Requested resource not found.")
        return job

    def _list(self, said: dict[str, Any]) -> dict[str, Any]:
        by = {"Name": "TrainingJobName", "Status": "TrainingJobStatus"}.get(said.get("SortBy", ""), "CreationTime")
        found = [job.summary() for job in self._jobs.values() if all(_filters(job, said))]
        found.sort(key=lambda entry: entry[by], reverse=said.get("SortOrder") == "Descending")
        start = _start_of(said.get("NextToken"))
        size = said.get("MaxResults", 10)
        answer: dict[str, Any] = {"TrainingJobSummaries": found[start : start + size]}
        if start + size < len(found):
            answer["NextToken"] = base64.b64encode(f"from {start + size}".encode()).decode()
        return answer

    def _tags(self, operation: str, said: dict[str, Any]) -> dict[str, Any]:
        job = self._find(said["ResourceArn"])
        if operation == "AddTags":
            job.tags |= {tag["Key"]: tag["Value"] for tag in said["Tags"]}
        elif operation == "DeleteTags":
            job.tags = {key: value for key, value in job.tags.items() if key not in said["TagKeys"]}
            return {}
        return {"Tags": [{"Key": key, "Value": value} for key, value in job.tags.items()]}


def _filters(job: Job, said: dict[str, Any]) -> Iterator[bool]:
    summary = job.summary()
    yield said.get("NameContains", "") in job.name
    yield said.get("StatusEquals", job.status) == job.status
    warm = summary.get("WarmPoolStatus", {}).get("Status")
    yield said.get("WarmPoolStatusEquals", warm) == warm
    for member in ("CreationTime", "LastModifiedTime"):
        yield summary[member] > said.get(f"{member}After", float("-inf"))
        yield summary[member] < said.get(f"{member}Before", float("inf"))


def _start_of(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return int(base64.b64decode(token).decode().removeprefix("from "))
    except ValueError:
        raise Refusal("ValidationException", "Invalid NextToken.") from None
