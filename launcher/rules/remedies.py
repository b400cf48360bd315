"""Remedies for members whose limits in the service model a user could not read, such as patterns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from launcher.errors import Problem, SpecPath, nearest
from launcher.spec.model import value_at


def remedy(violation: Problem, request: Any, key: str) -> str:
    """Return `; write ...`, to be added to the message of a broken limit of the service model; empty if there is none.

    `key` is the name by which the spec calls the member.
    """
    path, code, member = violation.path, violation.code, str(violation.path[-1])
    if code == "aws-required":
        meant = _channel_meant(request["InputDataConfig"], path[1]) if path[0] == "InputDataConfig" else ""
        return f"; write {key}: {_EXAMPLES[member]}{meant}" if member in _EXAMPLES else ""
    found = ""
    if code in ("aws-pattern", "aws-enum") or member in _SHORT_FORMS:
        found = _remedy_of_text(path, request)
    if code == "aws-max" and path[0] in ("HyperParameters", "Environment"):
        found += f"; put {'it' if len(path) > 1 else 'some of them'} in a file in a channel, and name the file here"
    return found


def _channel_meant(channels: list[Any], index: int | str) -> str:
    """Return `, or ...` if another channel has almost the name of the one without data, as in `--set channels.trian.input_mode`."""
    names = [str(each.get("ChannelName")) if isinstance(each, dict) else "" for each in channels]
    near = nearest(own := names[int(index)], {*names} - {own})
    return f", or did you mean the channel {near}?" if near else ""


def _remedy_of_text(path: SpecPath, request: Any) -> str:
    if path[:1] == ("Environment",):
        return "; write a name of letters, digits and underscores that does not begin with a digit"
    value = value_at(request, path)
    if isinstance(value, str) and "\n" in value:
        last = "\n" not in value.rstrip("\n")
        return "; write |- or >- before the text to leave out its last line break" if last else "; write it on one line"
    if isinstance(value, str) and value != value.strip():
        return "; delete the space around it"
    known = _REMEDIES.get(str(path[-1]), "") if isinstance(value, str) else ""
    return known if isinstance(known, str) else known(value)


def _name(value: str) -> str:
    return "; write letters, digits and single hyphens" + (" in place of _" if "_" in value else "")


def _role(value: str) -> str:
    session = re.fullmatch(r"arn:(aws[a-z-]*):sts::(\d{12}):assumed-role/([^/]+)/.*", value)
    if session:
        return f"; it is the ARN of a session: write the role's, arn:{session[1]}:iam::{session[2]}:role/{session[3]}"
    if re.search(r":(user|group)/|:root$", value):
        return "; SageMaker needs a role, not a user: write arn:aws:iam::123456789012:role/name"
    inner = re.fullmatch(r"arn:.*(arn:aws[a-z-]*:iam::\d{12}:role/[^:]+)", value)
    if inner:
        return f"; it has an ARN inside an ARN: write {inner[1]}"
    name = value if re.fullmatch(r"[A-Za-z0-9+=,.@_/-]{1,64}", value) else "name"
    return f"; write the role's whole ARN, such as arn:aws:iam::123456789012:role/{name.removeprefix('role/')}"


def _uri(value: str) -> str:
    scheme, slashes, rest = value.partition("://")
    if slashes and scheme.lower() in ("s3", "s3a", "s3n"):
        has_bucket = rest.strip("/") and rest[0] != "/"
        return f"; write s3://{rest}" if has_bucket else "; write the bucket, too: s3://bucket/folder/"
    placed = re.fullmatch(r"(?:s3:?[/\\]+|arn:aws[a-z-]*:s3:::)([a-z0-9].*)", value, re.IGNORECASE)
    if placed:
        return "; write s3://" + placed[1].replace("\\", "/")
    if re.match(r"(\.{0,2}/|~|file:|[A-Za-z]:\\)", value):
        return "; it is on this machine: copy it to S3, and write s3://bucket/folder/"
    if re.fullmatch(r"[a-z0-9][a-z0-9.-]+/\S*", value):
        return f"; write s3://{value}, if that is the bucket"
    return "; write an S3 URI such as s3://bucket/folder/"


def _file_system(value: str) -> str:
    found = re.search(r"fs-[0-9a-f]{8,17}", value)
    if value.startswith("fsap-"):
        return "; it is an access point: write the file system's id, such as fs-0123456789abcdef0"
    return f"; write {found[0]}" if found else "; write its id, such as fs-0123456789abcdef0"


def _instance_type(value: str) -> str:
    is_local = value in ("local", "local_gpu", "local-gpu")
    return "; for a local run, write an instance type of AWS and add --local" if is_local else ""


_SHORT_FORMS = ("RoleArn", "FileSystemId")  # a value of a wrong length needs the same remedy as one of a wrong form
_EXAMPLES = {  # member -> an example of its value
    "DirectoryPath": "/folder",
    "FileSystemId": "fs-0123456789abcdef0",
    "InstanceCount": "1",
    "InstanceType": "ml.m5.xlarge",
    "Name": "loss",
    "OutputDataConfig": "{s3_output_path: s3://bucket/folder/}",
    "Regex": "'loss=([0-9.]+)'",
    "RoleArn": "arn:aws:iam::123456789012:role/name",
    "S3OutputPath": "s3://bucket/folder/",
    "S3Uri": "s3://bucket/folder/",
    "SecurityGroupIds": "[sg-0123456789abcdef0]",
    "Seed": "1",
    "Subnets": "[subnet-0123456789abcdef0]",
}
_KEY = "; write the key's id or ARN, or alias/NAME"
_TAG = "; write letters, digits, spaces and _ . : / = + - @"
_REMEDIES: dict[str, str | Callable[[str], str]] = {  # member -> the remedy, or a function from a wrong value to it
    "TrainingJobName": _name,
    "ExperimentName": _name,
    "TrialName": _name,
    "RunName": _name,
    "RoleArn": _role,
    "S3Uri": _uri,
    "S3OutputPath": _uri,
    "FileSystemId": _file_system,
    "KmsKeyId": _KEY,
    "VolumeKmsKeyId": _KEY,
    "InstanceType": _instance_type,
    "ChannelName": "; write letters, digits, hyphens, underscores and dots",
    "Key": _TAG,
    "Value": _TAG,
}
