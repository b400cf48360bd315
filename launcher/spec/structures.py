"""A spec's keys that are AWS's own, made from botocore's service model: a member that AWS adds is a key with the next botocore.

A key is the member's name in snake_case, and the member's shape decides its type. What is ours beside that is in `own_keys`, `job`
and `channels`; what a key means, for the JSON schema, is in launcher/reference/descriptions.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import create_model

from launcher.spec.aws_model import ALGORITHM, READ_ONLY, REQUEST, shapes
from launcher.spec.model import Section, spec_name
from launcher.spec.own_keys import OwnKeys
from launcher.spec.values import Boolean, Gigabytes, Integer, Seconds, Setting, Text

# Members whose keys have names of their own.
_NAMED = {"HyperParameters": "hyperparameters", "InputDataConfig": "channels", "TrainingImage": "image"}
OF_NO_MEMBERS = ("image", "channels", "tags")  # keys whose own keys are not members of their member
_SCALARS: dict[str, Any] = {"string": Text, "integer": Integer, "long": Integer, "boolean": Boolean}
_BY_UNIT: dict[str, Any] = {"InSeconds": Seconds, "InGB": Gigabytes}  # the end of a member's name -> its type
_JSON_VALUES = ("ProfilingParameters",)  # maps whose values may be JSON


@cache
def structure(shape: str) -> Any:
    return create_model(shape, __base__=Section, **fields(shape))


def fields(shape: str, left_out: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a structure, as `create_model` takes them, without some of its members. All are None by default."""
    members = shapes()[shape]["members"].items()
    wanted = [(member, each["shape"]) for member, each in members if member not in (*READ_ONLY, *left_out)]
    return {spec_name(member): (_type_of(member, inner) | None, None) for member, inner in wanted}


def _type_of(member: str, shape_name: str) -> Any:
    shape = shapes()[shape_name]
    if shape["type"] == "structure":
        return structure(shape_name)
    if shape["type"] == "list":
        item: Any = _type_of("", shape["member"]["shape"])
        return tuple[item, ...]
    if shape["type"] == "map":
        value: Any = Setting if member in _JSON_VALUES else Text
        return dict[Text, value]
    return next((known for end, known in _BY_UNIT.items() if member.endswith(end)), _SCALARS[shape["type"]])


@cache
def members() -> dict[str, tuple[str, ...]]:
    """Return the place of each top-level key's member in the request; those of AlgorithmSpecification are top-level keys, too."""
    found: dict[str, tuple[str, ...]] = {}
    for member in shapes()[REQUEST]["members"]:
        if member == ALGORITHM:
            found.update({_key(each): (ALGORITHM, each) for each in shapes()[ALGORITHM]["members"]})
        elif _key(member) not in OwnKeys.model_fields:
            found[_key(member)] = (member,)
    return found


def _key(member: str) -> str:
    return _NAMED.get(member, spec_name(member))
