"""The limits of CreateTrainingJob, read from botocore's service model: types, required members, enums, patterns, bounds.

botocore's validator checks types, required members and minima only; the service refuses the rest ten minutes later.
Reading the model file (0.04 s) needs no import of botocore (0.15 s), and its limits follow AWS without our help.
"""

from __future__ import annotations

import importlib.util
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from launcher.errors import Problem, SpecPath, did_you_mean, dotted
from launcher.spec.values import BOOLEANS, INTEGER, Plain

REQUEST = "CreateTrainingJobRequest"
ALGORITHM = "AlgorithmSpecification"  # whose members are top-level keys of a spec
READ_ONLY = ("SelectedInstanceType", "SelectedInstanceCount")  # members of ResourceConfig that only responses have
_SERVICE = "sagemaker/2017-07-24/service-2.json.gz"
_JSON_TYPES: dict[str, Any] = {"string": str, "boolean": bool, "list": list}
_JSON_TYPES |= {"integer": int, "long": int, "structure": dict, "map": dict}
LARGEST = 2**63 - 1  # number of 64 bits
_NEWER = "; if AWS has it by now and this botocore has not, add --ignore aws-enum"
_TYPE_NAMES = {str: "a text", int: "a whole number", bool: "true or false", dict: "a mapping", list: "a list"}
# The model's patterns are Java's; Python's `re` lacks these classes. All are used inside brackets. \w is wider
# than \p{L} by digits and the underscore, which the one class with \p{L} allows as well.
_JAVA_CLASSES = {
    r"\p{Alnum}": "a-zA-Z0-9",
    r"\p{L}": r"\w",
    r"\p{N}": r"\d",
    r"\p{Z}": r" \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
}


def botocore_data(name: str) -> bytes:
    """Return a file of botocore's data. Raises ImportError if botocore is missing."""
    package = importlib.util.find_spec("botocore")
    if package is None or not package.submodule_search_locations:
        raise ImportError("botocore is missing: pip install boto3")
    return Path(package.submodule_search_locations[0], "data", name).read_bytes()


@cache
def shapes() -> Mapping[str, Any]:
    """Return the service model's shapes by name. Raises ImportError if botocore is missing."""
    found: dict[str, Any] = json.loads(zlib.decompress(botocore_data(_SERVICE), wbits=31))["shapes"]
    return found


def violations(value: Any, shape_name: str = REQUEST, path: SpecPath = ()) -> Iterator[Problem]:
    """Yield a problem for every limit that `value` breaks, in the order of its members; its path is in the request."""
    shape = shapes()[shape_name]
    expected = _JSON_TYPES[shape["type"]]
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        what = "has no value" if value is None else f"is {shown(value)}"
        yield Problem(path, f"{what}, but {_TYPE_NAMES[expected]} belongs here", "aws-type")
    elif expected is dict and "members" in shape:
        yield from _members(value, shape, path)
    elif expected is dict:
        yield from _bounds(len(value), shape, path, "entry", "entries")
        for key, item in value.items():
            yield from violations(key, shape["key"]["shape"], (*path, key))
            yield from violations(item, shape["value"]["shape"], (*path, key))
    elif expected is list:
        yield from _bounds(len(value), shape, path, "item", "items")
        for index, item in enumerate(value):
            yield from violations(item, shape["member"]["shape"], (*path, index))
    elif expected is str:
        yield from _text(value, shape, path)
    elif expected is int:
        yield from _bounds(value, shape, path)


def typed(value: Any, shape_name: str) -> Any:
    """Return `value` with its unquoted scalars converted to the shape's types; those that do not fit stay as they are."""
    shape = shapes().get(shape_name, {})
    if isinstance(value, dict):
        members, inner = shape.get("members", {}), shape.get("value", {}).get("shape", "")
        return {key: typed(item, members.get(key, {}).get("shape", inner)) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item, shape.get("member", {}).get("shape", "")) for item in value]
    if not isinstance(value, Plain):
        return value
    expected = shape.get("type")  # None if the model has no such member; then the spelling decides
    if expected in ("integer", "long", None) and INTEGER.fullmatch(value):
        return int(value)
    if expected in ("boolean", None) and value in BOOLEANS:
        return BOOLEANS[value]
    return str(value)


def _members(value: dict[str, Any], shape: dict[str, Any], path: SpecPath) -> Iterator[Problem]:
    for name in shape.get("required", ()):
        if name not in value:
            yield Problem((*path, name), "is missing, and AWS requires it", "aws-required")
    for name, item in value.items():
        if name in shape["members"]:
            yield from violations(item, shape["members"][name]["shape"], (*path, name))
        else:
            hint = _suggestion(name, shape["members"], path)
            yield Problem((*path, name), f"is not a member of the request{hint}", "aws-unknown-member")


def _suggestion(name: str, known: dict[str, Any], path: SpecPath) -> str:
    if not path and name == REQUEST:
        return "; it is the request itself: write its members in its place"
    if elsewhere := [place for place in _places().get(name, ()) if place != path]:
        return f"; it belongs {' or '.join(f'under {dotted(place)}' if place else 'at its top' for place in elsewhere[:2])}"
    if not path and name in shapes()["DescribeTrainingJobResponse"]["members"]:
        return "; it is read-only, AWS returns it but does not accept it: delete it"
    return did_you_mean(name, known)


@cache
def _places() -> dict[str, list[SpecPath]]:
    """Return the structures of the request that have each member, at most two levels down and without items of lists."""
    found: dict[str, list[SpecPath]] = {}
    todo: list[tuple[SpecPath, str]] = [((), REQUEST)]
    for place, shape in todo:
        for name, member in shapes()[shape].get("members", {}).items():
            found.setdefault(name, []).append(place)
            if len(place) < 2 and shapes()[member["shape"]]["type"] == "structure":
                todo.append(((*place, name), member["shape"]))
    return found


def _text(value: str, shape: dict[str, Any], path: SpecPath) -> Iterator[Problem]:
    if "enum" in shape:
        if value not in shape["enum"]:
            known = shape["enum"]
            what = f"one of {', '.join(known)}" if len(known) <= 8 else "known to the installed botocore"
            near = did_you_mean(value, known)
            # A new instance type always resembles an old one, so there a near name does not mean a misspelt one.
            newer = "" if near and not value.startswith("ml.") else _NEWER
            yield Problem(path, f"{shown(value)} is not {what}{near}{newer}", "aws-enum")
        return
    too_long = list(_bounds(len(value), shape, path, "character", "characters"))
    yield from too_long
    # Matching a very long text can take minutes, and its length is wrong already.
    if not too_long and "pattern" in shape and not _pattern(shape["pattern"]).fullmatch(value):
        newline = "; it has a line break" if "\n" in value and "." in shape["pattern"] else ""
        message = f"{shown(value)} does not match the pattern of AWS, {shape['pattern']}{newline}"
        yield Problem(path, message, "aws-pattern")


def _bounds(size: int, shape: dict[str, Any], path: SpecPath, one: str = "", many: str = "") -> Iterator[Problem]:
    for limit, word in (("min", "least"), ("max", "most")):
        bound = shape.get(limit, LARGEST if limit == "max" else None)
        if bound is not None and (size < bound if limit == "min" else size > bound):
            unit = f" {one if bound == 1 else many}" if one else ""
            has = f"has {size:,} {one if size == 1 else many}" if one else f"is {size}"
            yield Problem(path, f"{has}, but AWS takes at {word} {bound:,}{unit}", f"aws-{limit}")


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    for java, python in _JAVA_CLASSES.items():
        pattern = pattern.replace(java, python)
    return re.compile(pattern)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
