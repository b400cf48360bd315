"""Turn AWS's refusal of a request into a problem at the line of the spec that caused it, with a remedy.

AWS names the member ("Value 'x' at 'resourceConfig.instanceType'") or repeats the value that it cannot use; both lead back to
the spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.aws.account import AwsError
from launcher.errors import AccountError, Problem, SpecPath
from launcher.planning import Plan

_MEMBER = re.compile(r"\bat '([A-Za-z]\w*(?:\.\w+)*)' failed")
_SHORTEST_VALUE = 5  # characters; a shorter value may occur in a message by chance
# Texts of AWS (from public reports of CreateTrainingJob's refusals) -> remedy; the first that matches.
_REMEDIES = {
    r"assume role|assume the role": "let the role's trust policy name sagemaker.amazonaws.com, and correct role_arn",
    r"No S3 objects found": "correct the URI, or upload the data; the role needs s3:ListBucket on the bucket",
    r"is not authorized to perform: iam:PassRole": "ask the account's administrator to allow you iam:PassRole on this role",
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


def locate_refusal(error: AwsError, plan: Plan) -> AccountError:
    """Return the refusal as one problem with its place in the spec."""
    message = str(error)
    path = _refused_member(message, error.code, plan.masked_request())  # the account has masked AWS's message
    remedy = next((each for pattern, each in _REMEDIES.items() if re.search(pattern, message)), None)
    place = plan.origin.place(path) if path else ()
    text = f"AWS refused: {message}" + (f"; {remedy}" if remedy else "")
    return AccountError([Problem(place, text, "aws-refused", location=plan.spec.locate(place) if place else None)])


def _refused_member(message: str, code: str, request: Mapping[str, Any]) -> SpecPath:
    """Return the request member that the message is about; empty if it names none."""
    if named := _MEMBER.search(message):
        return _member_path(named[1].split("."), request)
    if code == "ResourceLimitExceeded":
        hardware = request.get("ResourceConfig", {})
        return ("ResourceConfig", "InstanceType") if "InstanceType" in hardware else ("ResourceConfig",)
    repeated = [(len(value), path) for path, value in _texts(request) if value in message]
    return max(repeated, key=lambda each: each[0])[1] if repeated else ()


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


def _texts(value: Any, path: SpecPath = ()) -> Iterator[tuple[SpecPath, str]]:
    if isinstance(value, str):
        if len(value) >= _SHORTEST_VALUE and path != ("TrainingJobName",):
            yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
