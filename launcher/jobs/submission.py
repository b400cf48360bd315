"""Submission of a plan: create the job from exactly the request that was shown, and only once.

A network can lose the answer to a call that took effect. A job's name can never be used again, so looking it up before the
first attempt and after each failed one shows whether the job exists, and whether it is the requested one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.aws.account import Account, AwsError
from launcher.aws.attribution import locate_refusal
from launcher.aws.code_upload import upload_code
from launcher.aws.masking import HIDDEN, is_secret_name
from launcher.console import Console
from launcher.errors import AccountError, Problem, RefusedError
from launcher.planning import Plan
from launcher.request.aws_model import shapes
from launcher.spec.names import place_of_name

_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0  # doubled after each attempt; botocore waits within each of them as well
_LIKELY_SECRET = 8  # characters
_TAKEN = ("ResourceInUse", "ResourceInUseException")


@dataclass(frozen=True)
class Submitted:
    """A job that has been created."""

    name: str
    arn: str
    region: str
    profile: str | None = None
    was_found: bool = False
    """Whether a simultaneous submission of the same request created it."""


def submit(plan: Plan, account: Account, console: Console) -> Submitted:
    """Upload the code and create the job.

    Raises:
        AccountError: AWS refuses the request, or the name is taken.
        RefusedError: The job could not be created, or it is unknown whether it exists; the message says which.
        AwsError: Another call failed before the job was created.
    """
    name = plan.request["TrainingJobName"]
    mask(plan, account)
    if _look_up(account, name) is not None:
        raise _name_taken(plan)
    upload_code(plan, account, console)
    try:
        return _create(plan, account, console)
    except KeyboardInterrupt:
        remedy = f"`launch status {name} --region {account.region}` shows whether it exists"
        raise KeyboardInterrupt(f"interrupted while the job was being created; {remedy}") from None


def mask(plan: Plan, account: Account) -> None:
    """Mask the plan's hidden values in everything that AWS answers.

    Any of an earlier job's settings can be a secret, so all are masked, except short ones such as `no` or `INFO`.
    """
    for (member, name), written in plan.spec.masked.items():
        value = str(plan.request.get(member, {}).get(name) or "")
        if written != HIDDEN or is_secret_name(name) or len(value) >= _LIKELY_SECRET:
            account.mask.add(value, written)


def _create(plan: Plan, account: Account, console: Console) -> Submitted:
    name, unsure = plan.request["TrainingJobName"], False
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            answer = account.call("sagemaker", "create_training_job", **plan.request)
            return Submitted(name, str(answer["TrainingJobArn"]), account.region, plan.spec.profile)
        except AwsError as error:
            last, is_taken = error, error.code in _TAKEN
        unsure = unsure or last.may_have_happened
        if (unsure or is_taken) and (job := _look_up(account, name, last)) is not None:
            if not is_of_request(job, plan.request):
                raise _name_taken(plan)
            # The name was free before. If none of our answers was lost, another submission has taken it since.
            return Submitted(name, str(job["TrainingJobArn"]), account.region, plan.spec.profile, was_found=not unsure)
        if last.is_expired:
            raise RefusedError(f"{last}; no job {name} was created")
        if not last.is_passing and not is_taken:
            raise locate_refusal(last, plan)
        console.warn(f"{last}; no job {name} exists yet, trying again")
    raise RefusedError(f"{last}; no job {name} was created. Try again later; repeating the command is safe")


def _look_up(account: Account, name: str, cause: AwsError | None = None) -> Mapping[str, Any] | None:
    """Return the job of this name; None if there is none, or the caller may not look it up.

    After an attempt to create it, which ended with `cause`, RefusedError reports that it may exist.
    """
    try:
        return account.call("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if error.is_missing or (error.is_denied and cause is None):
            return None
        if cause is None:
            raise
        later = f"`launch status {name} --region {account.region}` shows it later"
        raise RefusedError(f"{cause}; whether the job exists is unknown: {error}. {later}") from None


def is_of_request(job: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Return whether a described job is the requested one, judged by the members that DescribeTrainingJob returns."""
    described = shapes()["DescribeTrainingJobResponse"]["members"]
    return all(_contains(job.get(member), value) for member, value in request.items() if member in described)


def _contains(actual: Any, asked: Any) -> bool:
    """Return whether `actual` has everything in `asked`; AWS may have added defaults."""
    if isinstance(asked, Mapping):
        return isinstance(actual, Mapping) and all(_contains(actual.get(key), value) for key, value in asked.items())
    if isinstance(asked, list):
        return isinstance(actual, list) and len(actual) == len(asked) and all(map(_contains, actual, asked))
    return bool(actual == asked) or (actual is None and not asked)


def _name_taken(plan: Plan) -> AccountError:
    name = plan.request["TrainingJobName"]
    path, location = place_of_name(name, plan.spec)
    instead = ", or write base_name instead, which makes a new name each time" if path else ""
    message = f"a training job {name!r} exists already, and a job's name cannot be used again; pass another with --name{instead}"
    return AccountError([Problem(path, message, "name-taken", location=location)])
