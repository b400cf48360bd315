"""Jobs in a queue: AWS Batch's service jobs, which create training jobs when it is their turn.

Batch is the engine: nothing here schedules. It names each attempt's training job itself, AWSBatch<name><characters>, and keeps a
service job that has ended for some days only (user guide, service-job-events and service-jobs). Names of service jobs need not be
unique; ours are, since a queue accepts a client token once, and the token follows from queue and name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from launcher.aws.session import Account, AwsError
from launcher.spec.own_keys import Queue

KIND = "SAGEMAKER_TRAINING"  # serviceJobType, and the type of a queue for such jobs
_WAITING = ("SUBMITTED", "PENDING", "RUNNABLE")  # without a training job, or with that of an earlier attempt
_ENDS = {"SUCCEEDED": "Completed", "FAILED": "Failed"}


def submission_request(request: Mapping[str, Any], queue: Queue) -> dict[str, Any]:
    """Return the SubmitServiceJob request, whose payload is the CreateTrainingJob request as botocore would send it."""
    name = request["TrainingJobName"]
    chosen = {
        "shareIdentifier": queue.share,
        "quotaShareName": queue.quota_share,
        "schedulingPriority": queue.priority,
        "retryStrategy": queue.attempts and {"attempts": queue.attempts},
        "timeoutConfig": queue.timeout and {"attemptDurationSeconds": queue.timeout},
    }
    return {
        "jobName": name,
        "jobQueue": queue.name,
        "serviceJobType": KIND,
        "serviceRequestPayload": json.dumps(request),
        **{member: value for member, value in chosen.items() if value is not None},
        "clientToken": hashlib.sha256(f"{queue.name}/{name}".encode()).hexdigest(),
    }


def find_service_job(account: Account, name: str, queue: str | None = None) -> dict[str, Any] | None:
    """Return the description of the latest service job of this name, in one queue or in any. Raises AwsError."""
    for each in _queues(account) if queue is None else [queue]:
        for found in _listed(account, each, "JOB_NAME", name):
            if found["jobName"] == name:  # the filter ignores case
                return account.call("batch", "describe_service_job", jobId=found["jobId"])
    return None


def service_jobs(account: Account, queue: str, since: datetime | None) -> Iterator[dict[str, Any]]:
    """Yield a queue's service jobs, the latest first, in the words of ListTrainingJobs' summaries. Raises AwsError."""
    after = round(since.timestamp() * 1000) if since else 0
    for job in _listed(account, queue, "AFTER_CREATED_AT", str(after)):
        yield {"TrainingJobName": job["jobName"], "TrainingJobStatus": _status(job), **_times(job), **_facts(job)}


def as_requested(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a described service job as the training job that its payload asks for, as DescribeTrainingJob describes one."""
    request: dict[str, Any] = json.loads(job["serviceRequestPayload"])
    status, facts, times = _status(job), _facts(job), _times(job)
    reasons = [f"in {facts['ServiceJob']['Queue']} ({job['status']})", job.get("statusReason")]
    if (preempted := job.get("preemptionSummary", {}).get("preemptedAttemptCount")) and status == "Queued":
        reasons.append(f"preempted {preempted} times" if preempted > 1 else "preempted")
    if (ended := [each for each in job.get("attempts", ()) if each.get("stoppedAt")]) and status == "Queued":
        reasons.append(f"attempt {len(ended)} ended: {ended[-1].get('statusReason', 'no reason is known')}")
    transition = {"Status": status, "StatusMessage": "; ".join(filter(None, reasons))}
    return {
        **request,
        **facts,
        **times,
        "TrainingJobStatus": "InProgress" if status == "Queued" else status,
        "SecondaryStatus": status,
        "SecondaryStatusTransitions": [{**transition, "StartTime": times["CreationTime"]}],
        **({"FailureReason": job.get("statusReason", "")} if status == "Failed" else {}),
    }


def as_training_job(account: Account, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training job of a service job's latest attempt, or while it waits what it asks for. Raises AwsError.

    Only the service job's own status shows whether an attempt was the last one.
    """
    arn, waiting = _arn(job), as_requested(job)
    if not arn or job["status"] in _WAITING:
        return waiting
    try:
        found = account.call("sagemaker", "describe_training_job", TrainingJobName=arn.rpartition("/")[2])
    except AwsError as error:
        if not error.is_missing:  # Batch deletes those that got no capacity
            raise
        return waiting
    if job["status"] not in _ENDS and found["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"):
        found["TrainingJobStatus"] = "InProgress"
    return {**found, **_facts(job)}


def _queues(account: Account) -> Iterator[str]:
    for page in account.pages("batch", "describe_job_queues"):
        yield from (each["jobQueueArn"] for each in page["jobQueues"] if each.get("jobQueueType") == KIND)


def _listed(account: Account, queue: str, by: str, value: str) -> Iterator[dict[str, Any]]:
    # Without a filter, only running jobs are listed.
    filters = [{"name": by, "values": [value]}]
    for page in account.pages("batch", "list_service_jobs", jobQueue=queue, filters=filters):
        yield from page["jobSummaryList"]


def _status(job: Mapping[str, Any]) -> str:
    """Return a TrainingJobStatus, or Queued."""
    if job["status"] == "FAILED" and job.get("isTerminated"):
        return "Stopped"
    return "Queued" if job["status"] in _WAITING else _ENDS.get(job["status"], "InProgress")


def _arn(job: Mapping[str, Any]) -> str:
    return str(job.get("latestAttempt", {}).get("serviceResourceId", {}).get("value", ""))


def _facts(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `--json` shows of a service job, beside what it shows of its training job."""
    own = {"Name": job["jobName"], "JobId": job["jobId"], "Status": job["status"]}
    if "jobQueue" in job:  # a description, and not a summary
        own |= {"Queue": job["jobQueue"].rpartition("/")[2], "Attempts": len(job.get("attempts", ()))}
    return {"ServiceJob": own, **({"TrainingJobArn": arn} if (arn := _arn(job)) else {})}


def _times(job: Mapping[str, Any]) -> dict[str, datetime]:
    times = {"CreationTime": job.get("createdAt", 0), "TrainingEndTime": job.get("stoppedAt")}
    return {member: datetime.fromtimestamp(at / 1000, timezone.utc) for member, at in times.items() if at is not None}
