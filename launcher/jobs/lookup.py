"""Looking up jobs by name, with a suggestion if there is no such job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice
from typing import Any, TypeVar

from launcher.aws.session import Account, AwsError
from launcher.errors import InputError, RefusedError, did_you_mean
from launcher.jobs.batch_queue import as_training_job, find_service_job
from launcher.jobs.lines import AGAIN
from launcher.jobs.outcome import ENDED
from launcher.masking import is_secret, settings_to_hide

_Answer = TypeVar("_Answer")
_MOST_LISTED = 10_000  # among which the caller's jobs are looked for
_SEARCHED = {  # ListTrainingJobs' parameters as filters of Search
    "NameContains": ("TrainingJobName", "Contains"),
    "StatusEquals": ("TrainingJobStatus", "Equals"),
    "CreationTimeAfter": ("CreationTime", "GreaterThanOrEqualTo"),
}
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # TrainingJobName in the service model


def describe(account: Account, name: str, service_job: str = "") -> dict[str, Any]:
    """Return DescribeTrainingJob's answer, with the job's secrets masked in its messages. Raises RefusedError.

    A job in a queue is described by its latest attempt's training job, or while it waits by its request, and has a `ServiceJob`.
    It is looked for in all queues, unless the ID of its service job is given.
    """
    if not _NAME.fullmatch(name):
        expected = "at most 63 letters, digits and '-'; `launch list` shows names"
        raise InputError(f"{name!r} is not a training job's name: expected {expected}")
    try:
        if service_job:
            found = account.call("batch", "describe_service_job", jobId=service_job)
            return _without_secrets(account, as_training_job(account, found))
        return _without_secrets(account, account.call("sagemaker", "describe_training_job", TrainingJobName=name))
    except AwsError as error:
        if not error.is_missing or service_job:
            raise
    queues = ""
    try:
        if (queued := find_service_job(account, name)) is not None:
            return _without_secrets(account, as_training_job(account, queued))
    except AwsError as error:
        if error.is_passing or error.is_unauthenticated:
            raise
        queues = f" (and its queues are unknown: {error})"
    try:
        latest = [job["TrainingJobName"] for job in jobs(account, limit=100)]
    except AwsError:  # only the suggestion is lost
        latest = []
    missing = f"there is no training job {name!r} in {account.region}{queues}{did_you_mean(name, latest)}"
    raise RefusedError(
        f"{missing}; `launch list{account.options}` shows the existing ones, --region looks in another region, and `aws sagemaker`"
        " shows jobs of other kinds, such as tuning and processing, and pipelines"
    )


def tried(warn: Callable[[str], None], ask: Callable[..., _Answer], *arguments: Any) -> _Answer | None:
    """Return AWS's answer; None if there may be one later, since neither throttling nor the network may end a command."""
    try:
        return ask(*arguments)
    except AwsError as error:
        if not error.is_passing:
            raise
        warn(f"{error}; {AGAIN}")
        return None


def jobs(account: Account, limit: int, **filters: Any) -> Iterator[dict[str, Any]]:
    """Return at most `limit` of ListTrainingJobs' summaries, the latest job first.

    `filters` are its parameters, such as NameContains and CreationTimeAfter; those that are None do not filter.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    order = {"SortBy": "CreationTime", "SortOrder": "Descending"}
    pages = account.pages("sagemaker", "list_training_jobs", **order, MaxResults=min(limit, 100), **given)
    return islice(chain.from_iterable(page["TrainingJobSummaries"] for page in pages), limit)


def jobs_with_settings(
    account: Account,
    limit: int,
    tags: Mapping[str, str],
    names: set[str] | None,
    warn: Callable[[str], None],
    **filters: Any,
) -> list[dict[str, Any]]:
    """Return at most `limit` jobs as described, the latest first: those with all `tags` and, unless None, one of the `names`.

    ListTrainingJobs has neither instances nor times of billing. Search has, but its answers may be some seconds old, so a job
    without `tags` and `names` is listed by the former, and at first without them.
    """
    if tags or names is not None:
        if names is None:
            return list(_searched(account, limit, tags, **filters))
        listed = _searched(account, _MOST_LISTED, tags, **filters)
        mine = (job for job in listed if job["TrainingJobName"] in names)
        return list(islice(mine, min(limit, len(names))))
    known: dict[str, dict[str, Any]] = {}
    try:
        known = {job["TrainingJobName"]: job for job in _searched(account, limit, {}, **filters)}
    except AwsError as error:
        if not error.is_denied:
            raise
        warn(f"instances and cost are unknown: {error}")
    return [known.get(job["TrainingJobName"], {}) | job for job in jobs(account, limit, **filters)]


def _searched(account: Account, limit: int, tags: Mapping[str, str], **filters: Any) -> Iterator[dict[str, Any]]:
    """Return at most `limit` of Search's jobs, the latest first; `filters` are those of `jobs`."""
    wanted = [(f"Tags.{key}", "Equals", value) for key, value in tags.items()]
    wanted += [(*_SEARCHED[name], value) for name, value in filters.items() if value is not None]
    asked = [
        {"Name": name, "Operator": operator, "Value": f"{value:%Y-%m-%dT%H:%M:%S}" if name == "CreationTime" else value}
        for name, operator, value in wanted
    ]
    order = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": min(limit, 100)}
    where = {"SearchExpression": {"Filters": asked}} if asked else {}
    pages = account.pages("sagemaker", "search", Resource="TrainingJob", **order, **where)
    found = (_without_secrets(account, each["TrainingJob"]) for page in pages for each in page["Results"])
    return islice(found, limit)


def names_created_by_caller(account: Account, since: datetime) -> set[str]:
    """Return the names of the jobs that the caller created, as CloudTrail records it: of 90 days, and some minutes late.

    No answer of SageMaker names who created a training job.
    """
    caller = account.caller["Arn"]
    created = {"LookupAttributes": [{"AttributeKey": "EventName", "AttributeValue": "CreateTrainingJob"}]}
    found = set()
    for page in account.pages("cloudtrail", "lookup_events", StartTime=since, **created):
        for event in page["Events"]:
            record = json.loads(event["CloudTrailEvent"])
            if record["userIdentity"].get("arn") == caller and "errorCode" not in record:
                found.add(record["requestParameters"]["trainingJobName"])
    return found


def stop(account: Account, name: str) -> tuple[str, str]:
    """Stop a job, and return its status and the line that reports it; it is no error if the job has ended. Raises RefusedError."""
    job = describe(account, name)
    status = job["TrainingJobStatus"]
    already = "already " if status == "Stopping" else ""
    if status not in (*ENDED, "Stopping"):
        try:
            if queued := job.get("ServiceJob"):
                account.call("batch", "terminate_service_job", jobId=queued["JobId"], reason="launch stop")
            else:
                account.call("sagemaker", "stop_training_job", TrainingJobName=name)
            status = "Stopping"
        except AwsError:
            status = describe(account, name)["TrainingJobStatus"]  # the job may have ended meanwhile
            if status not in (*ENDED, "Stopping"):
                raise
    if status != "Stopping":
        return status, f"{name}: already {status}"
    if job["SecondaryStatus"] == "Queued":
        return status, f"{name}: removed from its queue; no script was running"
    end = f"`launch logs {name}{account.options} --follow` shows the end"
    return status, f"{name}: {already}stopping; its script has 120 s to save. {end}"


def name_taken(job: Mapping[str, Any], region: str, *, is_in_spec: bool) -> str:
    """Return the error for a new job with the name of an existing, described one.

    AWS frees the name if that job is deleted, for which it must have ended and have no warm pool (DeleteTrainingJob).
    """
    name, status, created = job["TrainingJobName"], job["TrainingJobStatus"], job.get("CreationTime")
    since = f" since {created:%Y-%m-%d}" if created else ""
    instead = ", or write base_name instead, which makes a new name each time" if is_in_spec else ""
    message = f"a training job {name!r} exists already{since} ({status}); pass another name with --name{instead}"
    if status in ENDED and "ServiceJob" not in job and (job.get("WarmPoolStatus") or {}).get("Status") != "Available":
        command = f"aws sagemaker delete-training-job --training-job-name {name} --region {region}"
        message += f". `{command}` frees the name, and AWS forgets that job"
    return message


def tags_of(account: Account, job: Mapping[str, Any], warn: Callable[[str], None]) -> list[dict[str, str]] | None:
    """Return a job's tags without those of AWS; None, after a warning, if the caller may not list them."""
    is_known = "Tags" in job or "TrainingJobArn" not in job  # of a job that Search has found, or that waits in a queue
    pages = [job] if is_known else account.pages("sagemaker", "list_tags", ResourceArn=job["TrainingJobArn"])
    try:
        return [tag for page in pages for tag in page.get("Tags", ()) if not tag["Key"].startswith("aws:")]
    except AwsError as error:
        if not error.is_denied:
            raise
        warn(f"the tags of {job['TrainingJobName']} are unknown: {error}")
        return None


def _without_secrets(account: Account, job: dict[str, Any]) -> dict[str, Any]:
    for (member, name), value in settings_to_hide(job).items():
        # Values of other variables, such as `INFO` and `us-east-1`, occur in every text.
        if member == "HyperParameters" or is_secret(name, value):
            account.mask.add(value.strip("\"' "))  # some toolkits write values as JSON

    if job.get("FailureReason"):
        job["FailureReason"] = account.mask.apply(str(job["FailureReason"]))
    for transition in job.get("SecondaryStatusTransitions") or ():
        if transition.get("StatusMessage"):
            transition["StatusMessage"] = account.mask.apply(str(transition["StatusMessage"]))
    return job
