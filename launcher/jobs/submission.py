"""Plan -> training job: exactly the request that was shown, and never twice.

A network can lose the answer to a call that had its effect. A job's name is taken once and for all, so a look-up by name
before the first attempt and after each that went wrong tells whether the job is there, and whether it is the one asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.aws.account import Account, AwsError
from launcher.aws.attribution import placed
from launcher.aws.code_upload import upload_code
from launcher.aws.masking import HIDDEN, is_secret_name
from launcher.console import Console
from launcher.errors import AccountError, Problem, RefusedError
from launcher.planning import Plan
from launcher.request.aws_model import shapes
from launcher.spec.names import place_of_name

_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0  # doubled after each attempt; botocore has waited in each of them already
_LIKELY_SECRET = 8  # characters
_TAKEN = ("ResourceInUse", "ResourceInUseException")


@dataclass(frozen=True)
class Submitted:
    """A job that exists now."""

    name: str
    arn: str
    region: str
    profile: str | None = None
    was_found: bool = False
    """Whether another submission of the same request, at the same time, has created it."""


def submit(plan: Plan, account: Account, console: Console) -> Submitted:
    """Upload the code and create the job. Raises AccountError, AwsError or RefusedError; then it says whether a job exists."""
    name = plan.request["TrainingJobName"]
    mask(plan, account)
    if _look_up(account, name) is not None:
        raise _taken(plan)
    upload_code(plan, account, console)
    return _create(plan, account, console)


def mask(plan: Plan, account: Account) -> None:
    """Let nothing that the account's AWS says repeat a value that is not shown in the plan.

    Of a job's own settings nobody knows which are secrets, so all are hidden, but for short ones such as `no` or `INFO`.
    """
    for (member, name), written in plan.spec.masked.items():
        value = str(plan.request.get(member, {}).get(name) or "")
        if written != HIDDEN or is_secret_name(name) or len(value) >= _LIKELY_SECRET:
            account.mask.add(value, written)


def _create(plan: Plan, account: Account, console: Console) -> Submitted:
    """The one job that the request made, in however many attempts."""
    name = plan.request["TrainingJobName"]
    try:
        return _create_once(plan, account, console)
    except KeyboardInterrupt:
        told = f"`launch status {name} --region {account.region}` tells whether it exists"
        raise KeyboardInterrupt(f"interrupted while the job was being created; {told}") from None


def _create_once(plan: Plan, account: Account, console: Console) -> Submitted:
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
        if (unsure or is_taken) and (job := _look_up_after(account, name, last)) is not None:
            if not is_of_request(job, plan.request):
                raise _taken(plan)
            # The name was free a moment ago. If no answer of ours was lost, another submission has taken it since.
            return Submitted(name, str(job["TrainingJobArn"]), account.region, plan.spec.profile, was_found=not unsure)
        if last.is_expired:
            raise RefusedError(f"{last}; no job {name} was created")
        if not last.is_passing and not is_taken:
            raise placed(last, plan)
        console.warn(f"{last}; no job {name} exists yet, trying again")
    raise RefusedError(f"{last}; no job {name} was created. Try again later: the same command is safe to repeat")


def _look_up(account: Account, name: str) -> Mapping[str, Any] | None:
    """The job of this name; None where there is none, or where the caller may not ask."""
    try:
        return account.call("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if error.is_missing or error.is_denied:
            return None
        raise


def _look_up_after(account: Account, name: str, cause: AwsError) -> Mapping[str, Any] | None:
    """The same, when it matters: where it cannot be told whether the job exists, that is the error."""
    try:
        return account.call("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if error.is_missing:
            return None
        raise RefusedError(
            f"{cause}; and whether the job exists could not be asked: {error}."
            f" `launch status {name} --region {account.region}` will tell"
        ) from None


def is_of_request(job: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether a job, as DescribeTrainingJob tells of it, is what the request asks for. What Describe never tells counts not."""
    told = shapes()["DescribeTrainingJobResponse"]["members"]
    return all(_holds(job.get(member), value) for member, value in request.items() if member in told)


def _holds(told: Any, asked: Any) -> bool:
    """Whether all that was asked is told; defaults that AWS fills in may stand beside it."""
    if isinstance(asked, Mapping):
        return isinstance(told, Mapping) and all(_holds(told.get(key), value) for key, value in asked.items())
    if isinstance(asked, list):
        return isinstance(told, list) and len(told) == len(asked) and all(map(_holds, told, asked))
    return bool(told == asked) or (told is None and not asked)


def _taken(plan: Plan) -> AccountError:
    name = plan.request["TrainingJobName"]
    path, location = place_of_name(name, plan.spec)
    instead = ", or write base_name instead, which makes a new one each time" if path else ""
    message = f"a training job {name!r} exists already, and a job's name is never free again; give another with --name{instead}"
    return AccountError([Problem(path, message, "name-taken", location=location)])
