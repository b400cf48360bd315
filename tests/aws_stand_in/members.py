"""Whether a request's members conform to botocore's service model: required, type, length, range, enumeration, pattern.

The wording is that of AWS's front end ("1 validation error detected: Value ... at ... failed to satisfy constraint: ..."). A
pattern that Python cannot read (Java's character classes) is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from aws_stand_in.errors import Refusal
from aws_stand_in.wire import Call, session

_TYPES: dict[str, type | tuple[type, ...]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
}


def check(call: Call) -> None:
    """Raise ValidationException, or SerializationException if a member has another type."""
    shape = session().get_service_model(call.service).operation_model(call.operation).input_shape
    wrong = list(_problems(call.parameters, shape, ""))
    if wrong:
        count = f"{len(wrong)} validation error{'s' if len(wrong) > 1 else ''} detected: "
        raise Refusal("ValidationException", count + "; ".join(wrong))


def _problems(value: Any, shape: Any, place: str) -> Iterator[str]:
    kind = _TYPES.get(shape.type_name)
    if kind and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise Refusal(
            "SerializationException", f"{place}: {type(value).__name__} can not be converted to {shape.type_name}"
        )
    yield from (f"Value '{value}' at '{place}' failed to satisfy constraint: {what}" for what in _broken(value, shape))
    if shape.type_name == "structure":
        for name in shape.required_members:
            if value.get(name) is None:
                yield f"Value null at '{_under(place, name)}' failed to satisfy constraint: Member must not be null"
        for name, member in shape.members.items():
            if value.get(name) is not None:
                yield from _problems(value[name], member, _under(place, name))
    elif shape.type_name == "list":
        for number, item in enumerate(value, 1):
            yield from _problems(item, shape.member, f"{place}.{number}.member")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _problems(key, shape.key, f"{place}.key")
            yield from _problems(item, shape.value, f"{place}.{key}.member")


def _broken(value: Any, shape: Any) -> Iterator[str]:
    bounds = shape.metadata
    is_number = isinstance(value, (int, float))
    size = value if is_number else len(value) if hasattr(value, "__len__") else None
    what = "value" if is_number else "length"
    if size is not None and size < bounds.get("min", size):
        yield f"Member must have {what} greater than or equal to {bounds['min']}"
    if size is not None and size > bounds.get("max", size):
        yield f"Member must have {what} less than or equal to {bounds['max']}"
    enum = getattr(shape, "enum", None)
    if enum and value not in enum:
        yield f"Member must satisfy enum value set: [{', '.join(enum)}]"
    pattern = bounds.get("pattern")
    if pattern and isinstance(value, str) and not _fits(pattern, value):
        yield f"Member must satisfy regular expression pattern: {pattern}"


def _fits(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        return True


def _under(place: str, name: str) -> str:
    name = name[0].lower() + name[1:]
    return f"{place}.{name}" if place else name
