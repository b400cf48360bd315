"""AWS Batch's queues of the type SAGEMAKER_TRAINING and their service jobs. moto answers the rest of Batch.

A job stays RUNNABLE until a test orders `batch/jobs/NAME`: `start` creates the training job of an attempt, which the orders of
`sagemaker` advance, and `status` with `reason` changes the service job, as Batch would do when that job ends or is preempted.

Sources: Batch's API reference (SubmitServiceJob, ListServiceJobs, TerminateServiceJob) and user guide (service-job-status,
service-job-events, whose example has the names of training jobs). It does not show: shares and priorities at work, a listing that
lags, AWS's own wording of refusals, and which attempts of a job remain after missing capacity.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any

from aws_stand_in import members
from aws_stand_in.errors import Refusal
from aws_stand_in.training_jobs import TrainingJobs
from aws_stand_in.wire import Call

_ACCOUNT = "123456789012"
_OWN = ("DescribeJobQueues", "SubmitServiceJob", "DescribeServiceJob", "ListServiceJobs", "TerminateServiceJob")
_SUMMARY = ("jobId", "jobName", "jobArn", "serviceJobType", "status", "createdAt", "startedAt", "stoppedAt")
_ENDED = ("SUCCEEDED", "FAILED")
_PAGE = 100


class Queues:
    """The account's queues, which a test adds, and their service jobs in the order of their creation."""

    def __init__(self, now: Callable[[], float], training_jobs: TrainingJobs) -> None:
        self._now, self._training_jobs = now, training_jobs
        self.clear()

    def clear(self) -> None:
        """Remove all queues and jobs."""
        self._queues: dict[str, dict[str, Any]] = {}
        self._jobs: list[dict[str, Any]] = []
        self._tokens: set[str] = set()

    def answer(self, call: Call) -> dict[str, Any] | None:
        """Return the answer of an operation on queues and service jobs. Raises Refusal."""
        if call.operation not in _OWN:
            return None
        members.check(call)
        parameters = call.parameters
        if call.operation == "DescribeJobQueues":
            wanted = parameters.get("jobQueues")
            every = self._queues.values()
            return {
                "jobQueues": [q for q in every if wanted is None or {q["jobQueueName"], q["jobQueueArn"]} & {*wanted}]
            }
        if call.operation == "SubmitServiceJob":
            return self._submit(parameters, call.region)
        if call.operation == "ListServiceJobs":
            return self._list(parameters)
        job = next((each for each in self._jobs if parameters["jobId"] in (each["jobId"], each["jobArn"])), None)
        if job is None:
            raise Refusal("ClientException", f"Service job {parameters['jobId']} does not exist.")
        if call.operation == "DescribeServiceJob":
            return job
        if job["status"] not in _ENDED:
            job["isTerminated"] = True
            self._end(job, "FAILED", parameters["reason"])
        return {}

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """`queue` adds a queue with members as in DescribeJobQueues; `jobs/NAME` advances the latest job of a name."""
        if name == "queue":
            queue = parameters["jobQueueName"]
            arn = f"arn:aws:batch:us-east-1:{_ACCOUNT}:job-queue/{queue}"
            known = {"jobQueueArn": arn, "state": "ENABLED", "status": "VALID", "priority": 1}
            of_batch = {"computeEnvironmentOrder": [], "jobQueueType": "SAGEMAKER_TRAINING"}
            self._queues[queue] = {**known, **of_batch, **parameters}
            return {}
        job = next(each for each in reversed(self._jobs) if each["jobName"] == name.removeprefix("jobs/"))
        if parameters.pop("start", False):
            return self._start(job)
        if (status := parameters.get("status", job["status"])) in (*_ENDED, "RUNNABLE"):
            self._end(job, status, parameters.get("reason", ""))
        return job | parameters

    def _submit(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        queue = self._queue(request["jobQueue"])
        token = request.get("clientToken")
        if token in self._tokens:
            raise Refusal("ClientException", "A job with the same clientToken has already been submitted.")
        if queue["state"] != "ENABLED":
            raise Refusal("ClientException", f"{queue['jobQueueArn']} is disabled and accepts no new jobs.")
        self._tokens |= {token} if token else set()
        job_id = str(uuid.uuid4())
        arn, now = f"arn:aws:batch:{region}:{_ACCOUNT}:service-job/{job_id}", round(self._now() * 1000)
        own = {"jobId": job_id, "jobArn": arn, "jobQueue": queue["jobQueueArn"], "status": "RUNNABLE"}
        self._jobs.append({**request, **own, "createdAt": now, "startedAt": 0, "attempts": []})
        return {"jobName": request["jobName"], "jobId": job_id, "jobArn": arn}

    def _list(self, parameters: dict[str, Any]) -> dict[str, Any]:
        arn = self._queue(parameters["jobQueue"])["jobQueueArn"]
        found = [job for job in reversed(self._jobs) if job["jobQueue"] == arn]
        by, value = "STATUS", parameters.get("jobStatus", "RUNNING")
        for each in parameters.get("filters", ()):
            by, value = each["name"], each["values"][0]
        holds: dict[str, Callable[[dict[str, Any]], bool]] = {
            "STATUS": lambda job: job["status"] == value,
            "JOB_NAME": lambda job: job["jobName"].lower() == value.lower(),
            "AFTER_CREATED_AT": lambda job: job["createdAt"] > int(value),
        }
        start = int(parameters.get("nextToken", 0))
        found = [job for job in found if holds[by](job)]
        members_of = (*_SUMMARY, "isTerminated", "latestAttempt", "statusReason")
        page = [{key: job[key] for key in members_of if key in job} for job in found[start : start + _PAGE]]
        more = {"nextToken": str(start + _PAGE)} if start + _PAGE < len(found) else {}
        return {"jobSummaryList": page, **more}

    def _queue(self, name: str) -> dict[str, Any]:
        for queue in self._queues.values():
            if name in (queue["jobQueueName"], queue["jobQueueArn"]):
                return queue
        raise Refusal("ClientException", f"Job queue {name} does not exist.")

    def _start(self, job: dict[str, Any]) -> dict[str, Any]:
        """Create the training job of the next attempt, and return its name."""
        request = json.loads(job["serviceRequestPayload"])
        number = len(job["attempts"]) + 1
        unique = hashlib.sha256(f"{job['jobId']}/{number}".encode()).hexdigest()[:32]
        request["TrainingJobName"] = f"AWSBatch{job['jobName'][:23]}{unique}"
        arn = self._training_jobs.create(request, job["jobArn"].split(":")[3])["TrainingJobArn"]
        resource = {"serviceResourceId": {"name": "TrainingJobArn", "value": arn}}
        job["attempts"].append({**resource, "startedAt": round(self._now() * 1000)})
        job |= {"latestAttempt": resource, "status": "RUNNING"}
        return {"TrainingJobName": request["TrainingJobName"]}

    def _end(self, job: dict[str, Any], status: str, reason: str) -> None:
        """End the job, or the attempt of one that is queued again."""
        now = round(self._now() * 1000)
        if job["attempts"] and "stoppedAt" not in job["attempts"][-1]:
            job["attempts"][-1] |= {"stoppedAt": now, "statusReason": reason}
        job |= {"status": status, "statusReason": reason} | ({"stoppedAt": now} if status in _ENDED else {})
