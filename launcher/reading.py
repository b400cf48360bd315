"""Plain data -> parts of a spec; what does not fit is left out and reported, so that the rest can still be judged."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from launcher.errors import Path
from launcher.part import Part
from launcher.values import Choice, WrongTypeError

_Part = TypeVar("_Part", bound=Part)
_LEFT_OUT: Any = object()


class Misfit(NamedTuple):
    """Something in the data that its place does not take."""

    path: Path
    value: Any
    kind: Literal["unknown-key", "unknown-source", "wrong-type", "mapping", "list", "one-of"]
    """What is wrong, or what belongs there: a mapping, a list, one of the texts `known`."""
    message: str = ""
    known: tuple[str, ...] = ()
    """The keys of the mapping around an unknown key, or the texts that the place takes."""


def read_part(kind: type[_Part], data: dict[str, Any]) -> tuple[_Part, list[Misfit]]:
    """The part that fits in `data`, and everything that does not.

    A key that is unknown or has a wrong value is left out. A wrong item takes its list along, since items have an order.
    """
    misfits: list[Misfit] = []
    return _mapping(kind, data, (), misfits), misfits


def is_part(annotation: Any) -> bool:
    """Whether an annotation is a class of parts itself."""
    return get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, Part)


def part_in(annotation: Any) -> type[Part] | None:
    """The first class of parts in an annotation, such as `Part` in `tuple[Part, ...] | None`."""
    if is_part(annotation):
        return cast("type[Part]", annotation)
    inner = annotation.options if isinstance(annotation, Choice) else get_args(annotation)
    return next((part for part in map(part_in, inner) if part is not None), None)


def _read(expected: Any, value: Any, path: Path, misfits: list[Misfit]) -> Any:
    """`value` as a field of the type `expected` has it; `_LEFT_OUT` if it does not fit, or nothing is left of it."""
    origin, inner = get_origin(expected), get_args(expected)
    if expected is Any or (value is None and type(None) in inner):
        return value
    if origin in (Union, UnionType):
        return _read(next(each for each in inner if each is not type(None)), value, path, misfits)
    before = len(misfits)
    if origin is Annotated and isinstance(inner[1], Choice):
        if (chosen := inner[1].choose(value)) is not None:
            return _read(chosen, value, path, misfits)
        misfits.append(Misfit(path, value, "unknown-source"))
    elif origin is Annotated:
        try:
            return inner[1].read(value)
        except WrongTypeError as error:
            misfits.append(Misfit(path, value, "wrong-type", str(error)))
    elif origin is Literal:
        if value in inner:
            return str(value)
        misfits.append(Misfit(path, value, "one-of", known=inner))
    elif origin is tuple:
        if isinstance(value, list | tuple):
            items = tuple(_read(inner[0], item, (*path, index), misfits) for index, item in enumerate(value))
            return items if len(misfits) == before else _LEFT_OUT
        misfits.append(Misfit(path, value, "list"))
    elif not isinstance(value, dict):
        misfits.append(Misfit(path, value, "mapping"))
    elif origin is dict:
        read = {str(key): _read(inner[1], item, (*path, key), misfits) for key, item in value.items()}
        return {key: item for key, item in read.items() if item is not _LEFT_OUT}
    else:
        return _mapping(expected, value, path, misfits)
    return _LEFT_OUT


def _mapping(kind: type[_Part], data: dict[str, Any], path: Path, misfits: list[Misfit]) -> _Part:
    fields, values = kind.fields(), {}
    for key, value in data.items():
        if key not in fields:
            misfits.append(Misfit((*path, key), value, "unknown-key", known=tuple(fields)))
        elif (read := _read(fields[key].annotation, value, (*path, key), misfits)) is not _LEFT_OUT:
            values[key] = read
    return kind(**values)
