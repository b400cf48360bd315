"""A request as other tools store and spell it -> the request as CreateTrainingJob expects it.

A Step Functions state, a SageMaker pipeline's step, an event, a search's result or a Kubernetes resource contains the request
somewhere inside; DescribeTrainingJob's response mixes it with members that only responses have; property lists and resources write
`trainingJobName` or `s3URI`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.errors import InputError, SpecPath, dotted
from launcher.spec.aws_model import READ_ONLY, REQUEST, shapes, typed

_DESCRIBED = {"TrainingJobArn", "TrainingJobStatus", "CreationTime"}  # only a response has these
# Members for the tool that sends the request: Airflow's uploads, a Kubernetes operator's endpoint.
_OF_TOOLS = ("S3Operations", "sageMakerEndpoint")
_WHAT_IS_TRAINED = {"algorithmspecification", "serverlessjobconfig"}  # no other SageMaker request has one
_OF_TUNING = "hyperparametertuningjobconfig"
TUNING_JOB = "is a tuning job; import one of its training jobs"
_JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")


@dataclass(frozen=True)
class FoundRequest:
    """A request, keys of a spec that were found around it, and notes on what was changed."""

    request: dict[str, Any]
    keys: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_past: bool = False  # whether a job with this request and name exists already


def find_request(data: Mapping[str, Any], pick: str | None = None) -> FoundRequest:
    """Return the one request in `data`, in CreateTrainingJob's names, without nulls and without members of responses.

    `pick` chooses one of several, by its number, from 1, or its place. Raises InputError if no one request remains,
    or it is a tuning job's.
    """
    held, around = _unwrapped(data, pick)
    if _OF_TUNING in map(_normalized, held):
        raise InputError(TUNING_JOB)
    left_out = ", ".join(key for key in _OF_TOOLS if held.get(key) is not None)
    held = {key: value for key, value in held.items() if key not in _OF_TOOLS and value is not None}
    region = held.pop("region", None)
    keys = {"region": str(region)} if region else {}
    names = shapes()[REQUEST]["members"]
    request = held if not names.keys().isdisjoint(held) else _renamed(held, REQUEST)
    request = typed(_without_response_members(request), REQUEST)
    made_text = ", ".join(_make_text(request))
    notes = {
        "Left out, since it is not part of the request": left_out,
        "Converted to text, since AWS accepts nothing else": made_text,
    }
    if "TrainingJobName" not in request and _JOB_NAME.fullmatch(around):
        keys["base_name"] = around
    shown = tuple(f"{why}: {names}" for why, names in notes.items() if names)
    return FoundRequest(request, keys, shown, not _DESCRIBED.isdisjoint(held))


def _unwrapped(data: Mapping[str, Any], pick: str | None) -> tuple[dict[str, Any], str]:
    """Return the request as stored, and the name of the object around it, or an empty text."""
    known = {_normalized(member) for member in shapes()[REQUEST]["members"]}
    if not known.isdisjoint(map(_normalized, data)):
        return dict(data), ""
    found = list(_candidates(data, (), ""))
    if not found:
        raise InputError("is not a request: expected an object with members such as TrainingJobName")
    if len(found) > 1 or pick:
        places = {dotted(place): number for number, (place, _, _) in enumerate(found, 1)}
        chosen = [
            each for each, (place, number) in zip(found, places.items(), strict=True) if pick in (place, str(number))
        ]
        if not chosen:
            listed = ", ".join(f"{number} {place}" for place, number in places.items())
            raise InputError(f"has {len(found)} requests: {listed}; choose one of them with --pick 1, or its number")
        found = chosen
    ((_, held, name),) = found
    return held, name


def _candidates(value: Any, place: SpecPath, name: str) -> Iterator[tuple[SpecPath, dict[str, Any], str]]:
    """Yield every request below `value`, with its place and the name of the object around it."""
    if isinstance(value, dict):
        names = {_normalized(key) for key in value}
        if _OF_TUNING in names or (names & _WHAT_IS_TRAINED and len(names) > 1):
            yield place, value, name
            return
        metadata = value.get("metadata") if "spec" in value else None
        own = metadata.get("name") if isinstance(metadata, dict) else value.get("Name")
        for key, item in value.items():
            yield from _candidates(item, (*place, key), str(own) if isinstance(own, str) else "")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _candidates(item, (*place, index), "")


def _normalized(name: Any) -> str:
    """Return a member's name in a form common to all spellings: `trainingJobName`, `training_job_name`, `TrainingJobName.$`."""
    return str(name).removesuffix(".$").replace("_", "").lower()


def _renamed(value: Any, shape_name: str) -> Any:
    """Return `value` with the model's spelling of its members, and lists of name and value as maps."""
    shape = shapes()[shape_name]
    is_list = isinstance(value, list)
    if shape["type"] == "map" and is_list and all(isinstance(x, dict) and x.keys() == {"name", "value"} for x in value):
        return {str(item["name"]): item["value"] for item in value}
    if shape["type"] == "structure" and is_list and len(value) == 1:
        value = value[0]  # a block of Terraform's state
    if shape_name == "TagList" and isinstance(value, dict):
        return _tags(value)
    if shape["type"] == "list" and isinstance(value, list):
        return [_renamed(item, shape["member"]["shape"]) for item in value]
    if shape["type"] != "structure" or not isinstance(value, dict):
        return value
    names = {_normalized(member): member for member in shape["members"]}
    renamed = {}
    for key, item in value.items():
        member = names.get(_normalized(key), key)
        member = key if member in renamed else member  # written twice: the plan reports it
        renamed[member] = _renamed(item, shape["members"][member]["shape"]) if member in shape["members"] else item
    return renamed


def _tags(tags: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _make_text(request: dict[str, Any]) -> Iterator[str]:
    """Convert numbers and booleans to text in members that allow only text; yield their places."""
    for member in ("HyperParameters", "Environment"):
        values = request.get(member)
        for name, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, bool | int | float):
                request[member] = {**request[member], name: json.dumps(value)}
                yield f"{member}.{name if name.isprintable() else ascii(name)}"


def _without_response_members(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request without nulls, and without the members of a response if it is one."""
    response = not _DESCRIBED.isdisjoint(data)
    known = shapes()[REQUEST]["members"]
    request = {key: value for key, value in _without_nulls(data).items() if key in known or not response}
    if not response:
        return request
    resources = request.get("ResourceConfig")
    if isinstance(resources, dict):
        for member in READ_ONLY:
            resources.pop(member, None)
        if "InstanceGroups" in resources and resources.get("InstanceCount") == 0:
            del resources["InstanceCount"]  # a response has this although the groups have counts of their own
    if isinstance(request.get("Tags"), dict):  # an event's
        request["Tags"] = _tags(request["Tags"])
    return {key: value for key, value in request.items() if value not in ({}, []) or key not in ("VpcConfig", "Tags")}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
