"""Finding a job by its name, and saying what is like it where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.aws.account import Account, AwsError
from launcher.errors import RefusedError
from launcher.nearest import did_you_mean
from launcher.submit import is_missing


def describe(account: Account, name: str) -> dict[str, Any]:
    """DescribeTrainingJob's answer. Raises RefusedError where there is no such job, naming one that is spelt alike."""
    try:
        return account.call("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if not is_missing(error):
            raise
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


def _latest_names(account: Account) -> list[str]:
    try:
        return [job["TrainingJobName"] for job in jobs(account, limit=100)]
    except AwsError:  # only a hint is lost
        return []
