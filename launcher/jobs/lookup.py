"""Finding a job by its name, and saying what is like it where there is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from launcher.aws.account import Account, AwsError
from launcher.aws.masking import is_secret_name, settings_to_hide
from launcher.errors import InputError, RefusedError
from launcher.nearest import did_you_mean

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # TrainingJobName in the service model


def describe(account: Account, name: str) -> dict[str, Any]:
    """DescribeTrainingJob's answer. Raises RefusedError where there is no such job, naming one that is spelt alike,
    and InputError for what can be no name.

    What it says in words can hold a command with all its arguments, and does not hold the job's secrets any more.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no training job's name: letters, digits and '-', at most 63; `launch list` shows them"
        )
    try:
        job = account.call("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if not error.is_missing:
            raise
    else:
        return _veiled(account, job)
    raise RefusedError(
        f"there is no training job {name!r} in {account.region}{did_you_mean(name, _latest_names(account))};"
        " `launch list` shows those there are, --region asks elsewhere"
    )


def jobs(
    account: Account, *, status: str | None = None, contains: str | None = None, since: Any = None, limit: int = 20
) -> Iterator[dict[str, Any]]:
    """Summaries of jobs, the latest first, as ListTrainingJobs tells them; at most `limit`.

    `since` is a datetime: jobs created after it.
    """
    wanted = {"StatusEquals": status, "NameContains": contains, "CreationTimeAfter": since}
    given = {key: value for key, value in wanted.items() if value is not None}
    pages = account.pages(
        "sagemaker",
        "list_training_jobs",
        SortBy="CreationTime",
        SortOrder="Descending",
        MaxResults=min(limit, 100),
        **given,
    )
    left = limit
    for page in pages:
        yield from page["TrainingJobSummaries"][:left]
        left -= len(page["TrainingJobSummaries"])
        if left <= 0:
            return


def tags_of(account: Account, job: Mapping[str, Any], warn: Callable[[str], None]) -> list[dict[str, str]] | None:
    """The tags of a described job, without AWS's own; None, and a warning, where the caller may not ask."""
    tags: list[dict[str, str]] = []
    try:
        for page in account.pages("sagemaker", "list_tags", ResourceArn=job["TrainingJobArn"]):
            tags += [tag for tag in page.get("Tags", []) if not tag["Key"].startswith("aws:")]
    except AwsError as error:
        if not error.is_denied:
            raise
        warn(f"the tags of {job['TrainingJobName']} are not known: {error}")
        return None
    return tags


def _veiled(account: Account, job: dict[str, Any]) -> dict[str, Any]:
    for (member, name), value in settings_to_hide(job).items():
        if member == "HyperParameters" or is_secret_name(name):  # `INFO` and `us-east-1` stand in every text
            account.mask.add(value.strip("\"' "))  # some toolkits write values as JSON

    def told(text: Any) -> str:
        return "".join(char if char.isprintable() or char.isspace() else " " for char in account.mask.apply(str(text)))

    if job.get("FailureReason"):
        job["FailureReason"] = told(job["FailureReason"])
    for transition in job.get("SecondaryStatusTransitions") or ():
        if transition.get("StatusMessage"):
            transition["StatusMessage"] = told(transition["StatusMessage"])
    return job


def _latest_names(account: Account) -> list[str]:
    try:
        return [job["TrainingJobName"] for job in jobs(account, limit=100)]
    except AwsError:  # only a hint is lost
        return []
