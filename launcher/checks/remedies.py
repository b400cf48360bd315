"""What to write instead, for members whose pattern in the service model says it to machines only."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from launcher.errors import Path


def remedy(path: Path, request: Any) -> str:
    """`; write ...` for a text at `path` of a request that does not match its pattern; nothing where none is known."""
    if path[:1] == ("Environment",):
        return "; a variable's name has letters, digits and underscores, and begins with no digit"
    value = request
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return ""
    known = _REMEDIES.get(str(path[-1]))
    return known(value) if known and isinstance(value, str) else ""


def _name(value: str) -> str:
    return "; write letters, digits and single hyphens" + (" in place of _" if "_" in value else "")


def _role(value: str) -> str:
    session = re.fullmatch(r"arn:(aws[a-z-]*):sts::(\d{12}):assumed-role/([^/]+)/.*", value)
    if session:
        return f"; that is a session of a role, whose own ARN is arn:{session[1]}:iam::{session[2]}:role/{session[3]}"
    if re.search(r":(user|group)/", value):
        return "; SageMaker works as a role, not as a user: write arn:aws:iam::123456789012:role/name"
    return "; write the role's whole ARN, such as arn:aws:iam::123456789012:role/name"


def _uri(value: str) -> str:
    scheme, slashes, rest = value.partition("://")
    if slashes and scheme.lower() in ("s3", "s3a", "s3n"):
        return f"; write s3://{rest}" if rest else "; write s3://bucket/folder/"
    return "; write where it lies in S3, such as s3://bucket/folder/"


def _file_system(value: str) -> str:
    found = re.search(r"fs-[0-9a-f]{8,17}", value)
    return f"; write {found[0]}" if found else "; write its id, such as fs-0123456789abcdef0"


def _channel(value: str) -> str:
    return "; write letters, digits, hyphens, underscores and dots"


def _tag(value: str) -> str:
    return "; write letters, digits, spaces and _ . : / = + - @"


_REMEDIES: dict[str, Callable[[str], str]] = {  # member -> what to write instead of a value of it
    "TrainingJobName": _name,
    "ExperimentName": _name,
    "TrialName": _name,
    "RunName": _name,
    "RoleArn": _role,
    "S3Uri": _uri,
    "S3OutputPath": _uri,
    "FileSystemId": _file_system,
    "ChannelName": _channel,
    "Key": _tag,
    "Value": _tag,
}
