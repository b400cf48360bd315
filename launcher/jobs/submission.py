"""Submission of a plan: create the job from exactly the request that was shown, and only once.

A network can lose the answer to a call that took effect. Two jobs never have one name, so looking it up before the first
attempt and after each failed one shows whether the job exists, and whether it is the requested one. A queue accepts a second job of
a name, but not with the same client token, and it refuses that one with the code of every other wrong request.

A refusal becomes a problem at the line of the spec that caused it: AWS names the member ("Value 'x' at
'resourceConfig.instanceType'") or repeats the value that it cannot use, and both lead back to the spec.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launcher.aws.code_upload import upload_code
from launcher.aws.session import Account, AwsError
from launcher.console import Console
from launcher.errors import AccountError, Problem, RefusedError, SpecError, SpecPath
from launcher.jobs.batch_queue import as_requested, find_service_job, submission_request
from launcher.jobs.lookup import name_taken
from launcher.masking import is_secret_name
from launcher.planning import Plan
from launcher.request.view import leaves
from launcher.rules.team_rules import not_allowed
from launcher.spec.aws_model import shapes
from launcher.spec.model import value_at
from launcher.spec.names import place_of_name
from launcher.spec.own_keys import Queue
from sagemaker_channels.mask import HIDDEN, Mask

_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0  # doubled after each attempt; botocore waits within each of them as well
_LIKELY_SECRET = 8  # characters
_FREE_TEXTS = {"Environment", "HyperParameters", "ContainerEntrypoint", "ContainerArguments", "Tags"}
_TAKEN = ("ResourceInUse", "ResourceInUseException")
_REJECTED = "ClientException"  # by Batch: a client token that it has seen, or a wrong request
_MEMBER = re.compile(r"\bat '([A-Za-z]\w*(?:\.\w+)*)' failed")
_DENIED = re.compile(r"is not authorized to perform: ([\w-]+:\w+)")
# Members that need a permission.
_OF_ACTION: dict[str, SpecPath] = {"iam:PassRole": ("RoleArn",), "sagemaker:AddTags": ("Tags",)}
_SHORTEST_VALUE = 5  # characters; a shorter value may occur in a message by chance
# Texts of AWS (from public reports of CreateTrainingJob's refusals) -> remedy; the first that matches.
_REMEDIES = {
    r"assume role|assume the role": "let the role's trust policy name sagemaker.amazonaws.com, and correct role_arn",
    r"No S3 objects found": "correct the URI, or upload the data; the role needs s3:ListBucket on the bucket",
    r"is not authorized to perform: iam:PassRole": "ask the account's administrator to allow you iam:PassRole on this role",
    r"service control policy|organizations": (
        "ask the organization's administrator, or change what the policy forbids, such as the region or the instance type"
    ),
    r"is not authorized to perform": "ask the account's administrator for this permission",
    r"service limit|ResourceLimitExceeded": (
        "request a higher limit in Service Quotas, or use another instance type or fewer instances"
    ),
    r"subnet": "name subnets in the job's region and account",
    r"security group": "name security groups in the subnets' VPC",
    r"(?i)\bimage\b.*(exist|find|found|invalid)": "correct image; it must be in a registry of the job's region",
    r"(?i)bucket": "name a bucket that exists in the job's region and that the role may use",
    r"(?i)capacity": "try again later, or in another zone or with another instance type",
}


@dataclass(frozen=True)
class Submitted:
    """A job that has been created."""

    name: str
    arn: str
    region: str
    profile: str | None = None
    was_found: bool = False
    """Whether a simultaneous submission of the same request created it."""
    service_job: str = ""
    """The ID of its service job if it is in a queue; `arn` is then that of the service job."""
    queue: str = ""
    """The name of that queue."""


def submit(
    plan: Plan,
    account: Account,
    console: Console,
    *,
    again: bool = False,
    on_uploaded: Callable[[], None] = lambda: None,
) -> Submitted:
    """Upload the code and create the job; with `again`, a job of this name and request that exists is returned instead.

    Raises SpecError if the team's files do not allow the account or region, AccountError if AWS refuses the request or the name is
    taken, RefusedError if the job could not be created or that is unknown, and AwsError if an earlier call failed.
    """
    name = plan.request["TrainingJobName"]
    mask_settings(plan, account.mask)
    require_allowed(plan, account)
    if (older := _look_up(account, name, queue=plan.spec.queue)) is not None:
        if not again or not is_of_request(older, plan.request):
            raise _name_taken(older, plan, account)
        return _submitted(plan, account, older, was_found=True)
    upload_code(plan, account, console)
    on_uploaded()
    try:
        return _create(plan, account, console)
    except KeyboardInterrupt:
        remedy = f"`launch status {name}{account.options}` shows whether it exists"
        raise KeyboardInterrupt(f"interrupted while the job was being created; {remedy}") from None


def require_allowed(plan: Plan, account: Account) -> None:
    """Raise SpecError if the team's files do not allow the account or its region, before anything is sent there."""
    team, caller = plan.spec.team, ""
    if team.accounts:
        caller = account.caller["Account"]
    problems = [
        Problem((), not_allowed(f"{what} {name}", row), f"team-{what}", location=row.at)
        for what, name, rows in (("account", caller, team.accounts), ("region", account.region, team.regions))
        for row in rows
        if name not in row.names
    ]
    if problems:
        raise SpecError(problems)


def mask_settings(plan: Plan, mask: Mask, *, likely: bool = False) -> None:
    """Mask the plan's hidden values.

    Any of an earlier job's settings can be a secret, so all are masked, except short ones such as `no` or `INFO`. So are short
    values outside of settings, arguments and tags, such as a number of instances. With `likely`, only the settings that are
    probably secrets are masked: a script's traceback has the others, such as `5`, by chance.
    """
    for path, written in plan.masked.items():
        place, value = plan.origin.place(path), str(value_at(plan.request, path))
        parts = {value: written, **plan.spec.variables.values.get(place, {})}
        is_free_text = not _FREE_TEXTS.isdisjoint(path) and written != HIDDEN
        for part, shown in parts.items():
            is_likely = is_secret_name(str(path[-1])) or (len(part) >= _LIKELY_SECRET and (is_free_text or not likely))
            if is_likely or (is_free_text and not likely):
                mask.add(part, shown)


def _create(plan: Plan, account: Account, console: Console) -> Submitted:
    name, queue, unsure = plan.request["TrainingJobName"], plan.spec.queue, False
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            if queue is not None:
                answer = account.call("batch", "submit_service_job", **submission_request(plan.request, queue))
                answer = {"TrainingJobArn": answer.get("jobArn"), "ServiceJob": {"JobId": answer["jobId"]}}
                return _submitted(plan, account, answer)
            return _submitted(plan, account, account.call("sagemaker", "create_training_job", **plan.request))
        except AwsError as error:
            last, is_taken = error, error.code in _TAKEN
        is_rejected = queue is not None and last.code == _REJECTED
        unsure = unsure or last.may_have_happened
        if (unsure or is_taken or is_rejected) and (job := _look_up(account, name, last, queue)) is not None:
            if not is_of_request(job, plan.request):
                raise _name_taken(job, plan, account)
            # The name was free before. If none of our answers was lost, another submission has taken it since.
            return _submitted(plan, account, job, was_found=not unsure)
        if last.is_unauthenticated:
            raise RefusedError(f"{last}; no job {name} was created")
        if not last.is_passing and not is_taken and not (is_rejected and unsure):  # what is listed may lag
            raise locate_refusal(last, plan)
        console.warn(f"{last}; no job {name} exists yet, trying again")
    if is_rejected:
        shows = f"`launch status {name}{account.options}` shows it later"
        raise RefusedError(f"{last}; the job probably exists, but its queue does not list it yet: {shows}")
    raise RefusedError(f"{last}; no job {name} was created. Try again later; repeating the command is safe")


def _submitted(plan: Plan, account: Account, job: Mapping[str, Any], *, was_found: bool = False) -> Submitted:
    """Return the job that is described, or that AWS has just answered to have created."""
    name, queue = plan.request["TrainingJobName"], str(plan.spec.queue.name) if plan.spec.queue else ""
    service_job = job.get("ServiceJob", {}).get("JobId", "")
    place = (job.get("TrainingJobArn") or service_job, account.region, plan.spec.profile)
    return Submitted(name, *place, was_found, service_job, queue.rpartition("/")[2])


def is_submitted(plan: Plan, account: Account) -> bool:
    """Return whether a job of the plan's name exists; `submit` compares its request. Raises AwsError."""
    return _look_up(account, plan.request["TrainingJobName"], queue=plan.spec.queue) is not None


def _look_up(
    account: Account, name: str, cause: AwsError | None = None, queue: Queue | None = None
) -> Mapping[str, Any] | None:
    """Return the job of this name; None if there is none, or the caller may not look it up. A queue has jobs of its own.

    After an attempt to create it, which ended with `cause`, RefusedError reports that it may exist.
    """
    try:
        if queue is not None:
            found = find_service_job(account, name, queue.name)
            return as_requested(found) if found else None
        return account.call("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if error.is_missing or (error.is_denied and cause is None):
            return None
        if cause is None:
            raise
        later = f"`launch status {name}{account.options}` shows it later"
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


def _name_taken(job: Mapping[str, Any], plan: Plan, account: Account) -> AccountError:
    path, location = place_of_name(plan.request["TrainingJobName"], plan.spec)
    message = name_taken(job, account.region, is_in_spec=bool(path))
    return AccountError([Problem(path, message, "name-taken", location=location)])


def locate_refusal(error: AwsError, plan: Plan) -> AccountError:
    message = str(error)
    path = _refused_member(message, error.code, plan.masked_request())  # the account has masked AWS's message
    remedy = next((each for pattern, each in _REMEDIES.items() if re.search(pattern, message)), None)
    place = ("queue",) if error.call.startswith("batch:") else plan.origin.place(path) if path else ()
    text = f"AWS refused: {message}" + (f"; {remedy}" if remedy else "")
    return AccountError([Problem(place, text, "aws-refused", location=plan.spec.locate(place) if place else None)])


def _refused_member(message: str, code: str, request: Mapping[str, Any]) -> SpecPath:
    """Return the request member that the message is about; empty if it names none."""
    if named := _MEMBER.search(message):
        return _member_path(named[1].split("."), request)
    if denied := _DENIED.search(message):  # the job's name in its ARN, and the caller's, repeat values by chance
        path = _OF_ACTION.get(denied[1], ())
        return path if path and path[0] in request else ()
    if code == "ResourceLimitExceeded":
        hardware = request.get("ResourceConfig", {})
        return ("ResourceConfig", "InstanceType") if "InstanceType" in hardware else ("ResourceConfig",)
    others = ((path, value) for path, value in leaves(request) if path != ("TrainingJobName",))
    repeated = [(len(value), path) for path, value in others if _repeats(message, value)]
    return max(repeated, key=lambda each: each[0])[1] if repeated else ()


def _repeats(message: str, value: Any) -> bool:
    """Return whether a message has the value, if it is a text, as whole words: `train` is not in `training-job`."""
    is_text = isinstance(value, str) and len(value) >= _SHORTEST_VALUE
    return is_text and re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", message) is not None


def _member_path(words: list[str], request: Mapping[str, Any]) -> SpecPath:
    """Return `inputDataConfig.1.member.channelName` as a path in the request; AWS counts lists from 1."""
    path: list[str | int] = []
    value: Any = request
    for word in words:
        if word == "member":
            continue
        if isinstance(value, list) and word.isdigit():
            index = int(word) - 1
            path.append(index)
            value = value[index] if index < len(value) else None
        else:
            known = value if isinstance(value, Mapping) else {}
            member = next((key for key in known if key.lower() == word.lower()), word[:1].upper() + word[1:])
            path.append(member)
            value = known.get(member)
    return tuple(path)
