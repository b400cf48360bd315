"""SageMaker's training jobs: create, describe, list, search, stop, delete, tags; and training plans. moto answers the rest.

A job stays `Starting` until a test advances it, by hand (`sagemaker/jobs/NAME`) or by a script that was set before or after its
creation (`sagemaker/script`). Its name is free again once it is deleted, as at AWS. Calls find a job in its own region, orders
in any.

Sources: SageMaker's API reference (CreateTrainingJob, ListTrainingJobs, Search, StopTrainingJob, DeleteTrainingJob, AddTags). The
wording of ResourceInUse and of "Requested resource not found." is that of AWS's answers in public reports.
"""

from __future__ import annotations

import base64
import fnmatch
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
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
    "Search",
    "StopTrainingJob",
    "DeleteTrainingJob",
    "UpdateTrainingJob",
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
        """Remove all jobs and scripts."""
        self._jobs: dict[tuple[str, str], Job] = {}  # by region and name
        self._plans: dict[str, dict[str, Any]] = {}
        self._scripts: list[tuple[str, list[Step], list[Step]]] = []

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return the answer of an operation on training jobs; None leaves the call to moto. Raises Refusal."""
        parameters = call.parameters
        if call.operation not in _OWN:
            return None
        if call.operation == "Search" and parameters.get("Resource") != "TrainingJob":
            return None
        if "Tags" in call.operation and ":training-job/" not in parameters.get("ResourceArn", ""):
            return None
        members.check(call)
        for job in self._jobs.values():
            job.settle(self._now())
        if call.operation == "CreateTrainingJob":
            return self.create(parameters, call.region)
        if call.operation == "ListTrainingJobs":
            return self._list(parameters, call.region)
        if call.operation == "Search":
            return self._search(parameters, call.region)
        if call.operation == "DescribeTrainingPlan":
            if parameters["TrainingPlanName"] not in self._plans:
                raise Refusal("ResourceNotFound", "Requested resource not found.")
            return self._plans[parameters["TrainingPlanName"]]
        if "Tags" in call.operation:
            return self._tags(call.operation, parameters)
        job = self._find(parameters["TrainingJobName"], call.region)
        if call.operation == "UpdateTrainingJob":
            return self._update(job, parameters)
        if call.operation == "DescribeTrainingJob":
            return job.describe(self._now())
        if call.operation == "DeleteTrainingJob":
            if job.ended is None:
                raise Refusal("ResourceInUse", f"{job.arn} is {job.status}; only a job that has ended can be deleted")
            del self._jobs[call.region, job.name]
            return {}
        job.stop(self._now())
        return {}

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """`jobs/NAME` advances a job, `jobs/NAME/step` runs a step of its script; `script` is for all jobs that match a pattern.

        `plan` adds a training plan with the members of DescribeTrainingPlan's answer.
        """
        kind, _, rest = name.partition("/")
        if kind == "plan":
            self._plans[parameters["TrainingPlanName"]] = parameters
            return {}
        if kind == "script":
            steps = [Step(**step) for step in parameters.get("steps", [])]
            on_stop = [Step(**step) for step in parameters.get("on_stop", [])]
            pattern = parameters.get("name", "*")
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
        elif parameters:
            step = Step(**parameters)
            job.apply(step, self._now() if step.after is None else job.created + step.after)
        return job.describe(self._now())

    def is_connected(self, target: str, region: str) -> bool:
        """Return whether the agent of a target of Systems Manager, `sagemaker-training-job:NAME_algo-1`, is connected."""
        name, _, host = target.removeprefix("sagemaker-training-job:").rpartition("_algo-")
        job = self._jobs.get((region, name))
        is_on = job is not None and job.request.get("RemoteDebugConfig", {}).get("EnableRemoteDebug")
        return bool(
            job
            and is_on
            and job.secondary == "Training"
            and 0 < int(host) <= job.request["ResourceConfig"]["InstanceCount"]
        )

    def _update(self, job: Job, parameters: dict[str, Any]) -> dict[str, Any]:
        """Change remote debugging, the only thing that `launch` updates."""
        if job.secondary not in ("Downloading", "Training"):
            raise Refusal("ValidationException", f"RemoteDebugConfig cannot be updated in status {job.secondary}")
        job.request["RemoteDebugConfig"] = parameters["RemoteDebugConfig"]
        return {"TrainingJobArn": job.arn}

    def create(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        """Answer CreateTrainingJob. Raises Refusal."""
        name = request["TrainingJobName"]
        if (region, name) in self._jobs:
            why = (
                "Training job names must be unique within an AWS account and region, and a training job with this name"
            )
            raise Refusal("ResourceInUse", f"{why} already exists ({self._jobs[region, name].arn})")
        job = Job(request, f"arn:aws:sagemaker:{region}:{_ACCOUNT}:training-job/{name}", self._now())
        for pattern, steps, on_stop in self._scripts:
            if fnmatch.fnmatchcase(name, pattern):
                job.script, job.on_stop = list(steps), list(on_stop)
                break
        self._jobs[region, name] = job
        return {"TrainingJobArn": job.arn}

    def _find(self, name: str, region: str | None = None) -> Job:
        """Return the job of a name or ARN; without a region, that of any."""
        name = name.rpartition("/")[2]
        for (of, known), job in self._jobs.items():
            if known == name and region in (of, None):
                return job
        raise Refusal("ValidationException", "Requested resource not found.")

    def _in(self, region: str) -> list[Job]:
        return [job for (of, _), job in self._jobs.items() if of == region]

    def _search(self, parameters: dict[str, Any], region: str) -> dict[str, Any]:
        """Answer Search: filters that must all hold, and the latest job first. New jobs are found at once, not seconds later."""
        filters = parameters.get("SearchExpression", {}).get("Filters", ())
        found = [{**job.describe(self._now()), "Tags": _tags_of(job)} for job in self._in(region)]
        found = [each for each in found if all(_matches(each, one) for one in filters)]
        found.sort(key=lambda each: each[parameters.get("SortBy", "LastModifiedTime")], reverse=True)
        page, token = _page(found, parameters)
        return {"Results": [{"TrainingJob": each} for each in page], **token}

    def _list(self, parameters: dict[str, Any], region: str) -> dict[str, Any]:
        by = {"Name": "TrainingJobName", "Status": "TrainingJobStatus"}.get(
            parameters.get("SortBy", ""), "CreationTime"
        )
        found = [job.summary() for job in self._in(region) if all(_filters(job, parameters))]
        found.sort(key=lambda entry: entry[by], reverse=parameters.get("SortOrder") == "Descending")
        page, token = _page(found, parameters)
        return {"TrainingJobSummaries": page, **token}

    def _tags(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        job = self._find(parameters["ResourceArn"], parameters["ResourceArn"].split(":")[3])
        if operation == "AddTags":
            job.tags |= {tag["Key"]: tag["Value"] for tag in parameters["Tags"]}
        elif operation == "DeleteTags":
            job.tags = {key: value for key, value in job.tags.items() if key not in parameters["TagKeys"]}
            return {}
        return {"Tags": _tags_of(job)}


def _matches(job: dict[str, Any], wanted: dict[str, str]) -> bool:
    """Return whether a job matches a filter of Search."""
    name, operator, value = wanted["Name"], wanted.get("Operator", "Equals"), wanted["Value"]
    tags = {f"Tags.{tag['Key']}": tag["Value"] for tag in job["Tags"]}
    actual = tags.get(name) if name.startswith("Tags.") else job.get(name)
    if operator == "GreaterThanOrEqualTo":
        moment = datetime.strptime(value, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
        return bool(actual is not None and actual >= moment.timestamp())
    if operator not in ("Equals", "Contains"):
        raise Refusal("ValidationException", f"The stand-in does not search by {operator}.")
    return str(actual) == value if operator == "Equals" else value in str(actual)


def _tags_of(job: Job) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in job.tags.items()]


def _page(found: list[dict[str, Any]], parameters: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return one page of what was found, and the token of the next, if there is one."""
    start, size = _start_of(parameters.get("NextToken")), parameters.get("MaxResults", 10)
    more = start + size < len(found)
    token = base64.b64encode(f"from {start + size}".encode()).decode()
    return found[start : start + size], {"NextToken": token} if more else {}


def _filters(job: Job, parameters: dict[str, Any]) -> Iterator[bool]:
    summary = job.summary()
    yield parameters.get("NameContains", "") in job.name
    yield parameters.get("StatusEquals", job.status) == job.status
    warm = summary.get("WarmPoolStatus", {}).get("Status")
    yield parameters.get("WarmPoolStatusEquals", warm) == warm
    for member in ("CreationTime", "LastModifiedTime"):
        yield summary[member] > parameters.get(f"{member}After", float("-inf"))
        yield summary[member] < parameters.get(f"{member}Before", float("inf"))


def _start_of(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return int(base64.b64decode(token).decode().removeprefix("from "))
    except ValueError:
        raise Refusal("ValidationException", "Invalid NextToken.") from None
