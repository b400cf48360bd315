"""What every mapping of a spec has in common: frozen, strict about its keys, and named after AWS's members.

A key is the AWS member's name in snake_case, so the way from a spec to the request and back is mechanical: `aws_name`
and `spec_name`. What is not said is None and stays out of the request; a written `null` is None too, and so suppresses a
default. `reading` makes parts from data and says what does not fit.

The classes are plain on purpose: pydantic's took longer to import and build (0.15 s) than all the rest of a dry run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_type_hints

_Self = TypeVar("_Self", bound="Part")
_IRREGULAR = {"gb": "GB"}  # the only word of the request that is not simply capitalised


class Field(NamedTuple):
    """One key of a mapping of a spec."""

    annotation: Any
    default: Any
    is_required: bool


class Part:
    """One mapping of a spec. Its fields are the annotated names of its class, and cannot be set again."""

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self.fields().keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(unknown)}")
        defaults = {name: field.default for name, field in self.fields().items()}
        self.__dict__.update(defaults | values, _written=frozenset(values))

    @classmethod
    def fields(cls: Any) -> dict[str, Field]:
        """The fields of the class by name, in the order of their declaration."""
        return _fields_of(cls)

    @property
    def written(self) -> frozenset[str]:
        """The names of the fields that were given, be it as None."""
        return frozenset(self.__dict__["_written"])

    def replaced(self: _Self, **changes: Any) -> _Self:
        """A copy with other values in some fields."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__ | changes, _written=self.written | changes.keys())
        return copy

    def to_request(self) -> dict[str, Any]:
        """This mapping with the request's member names, without what is None."""
        return {aws_name(key): as_request(value) for key, value in self if value is not None}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, self.__dict__[name]) for name in self.fields())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Part) and dict(self) == dict(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"{type(self).__name__}.{name} cannot be set; use replaced({name}=...)")
        object.__setattr__(self, name, value)


@cache
def _fields_of(cls: Any) -> dict[str, Field]:
    """The annotations are read when first asked for: most specs use few of the classes."""
    hints = get_type_hints(cls, include_extras=True)
    bases = [base for base in reversed(cls.__mro__) if issubclass(base, Part)]
    return {
        name: Field(hints[name], vars(base).get(name), name not in vars(base))
        for base in bases
        for name in vars(base).get("__annotations__", ())
        if name.islower() and not name.startswith("_")  # constants of a class are in capitals
    }


def as_request(value: Any) -> Any:
    """A field's value as plain dicts, lists and scalars of the request."""
    if isinstance(value, Part):
        return value.to_request()
    if isinstance(value, tuple):
        return [as_request(item) for item in value]
    return dict(value) if isinstance(value, dict) else value


def aws_name(key: str) -> str:
    """`max_runtime_in_seconds` -> `MaxRuntimeInSeconds`."""
    return "".join(_IRREGULAR.get(word, word[:1].upper() + word[1:]) for word in key.split("_"))


def spec_name(member: str) -> str:
    """`MaxRuntimeInSeconds` -> `max_runtime_in_seconds`; the inverse of `aws_name`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", member).lower()
