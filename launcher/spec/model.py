"""The base class of a spec's mappings: frozen, strict about keys, and named after AWS's members.

A key is the AWS member's name in snake_case, so `aws_name` and `spec_name` convert between a spec and the request. A key
that is not written is None and stays out of the request; a written `null` is None too, which suppresses a default.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from launcher.errors import SpecPath
from launcher.spec.aws_model import shapes


class Section(BaseModel):
    """One mapping of a spec."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def to_request(self) -> dict[str, Any]:
        """Return this mapping with the request's member names, without those that are None."""
        return {aws_name(key): as_request(value) for key, value in self if value is not None}


def section_of(annotation: Any) -> type[Section] | None:
    """Return the class inside `Section | None` or `tuple[Section, ...] | None`; None for the types of other fields."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, Section) else None
    return next(filter(None, map(section_of, get_args(annotation))), None)


def as_request(value: Any) -> Any:
    """Return a field's value as plain dicts, lists and scalars of the request."""
    if isinstance(value, Section):
        return value.to_request()
    if isinstance(value, tuple):
        return [as_request(item) for item in value]
    return dict(value) if isinstance(value, dict) else value


def aws_name(key: str) -> str:
    """Convert `volume_size_in_gb` to `VolumeSizeInGB`, as the model spells it; what is no member's key, by its words."""
    return _members().get(key) or "".join(word[:1].upper() + word[1:] for word in key.split("_"))


def spec_name(member: str) -> str:
    """Convert `MaxRuntimeInSeconds` to `max_runtime_in_seconds`; the inverse of `aws_name`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", member).lower()


@cache
def _members() -> dict[str, str]:
    return {spec_name(member): member for shape in shapes().values() for member in shape.get("members", ())}


def value_at(value: Any, path: SpecPath) -> Any:
    """Return the value at a path of a spec or a request; None if it has none."""
    for part in path:
        if isinstance(value, list):
            value = value[part] if isinstance(part, int) and part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else getattr(value, str(part), None)
    return value


def mapping_at(value: Any, path: SpecPath) -> dict[str, Any]:
    """Return the mapping at a path of a request; an empty one if nothing, or something else, is there."""
    found = value_at(value, path)
    return found if isinstance(found, dict) else {}
