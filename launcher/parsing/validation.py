"""A spec's values as pydantic's models take them, and each of pydantic's errors as a problem with its remedy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import ValidationError

from launcher import errors
from launcher.errors import Problem, SpecPath, did_you_mean, dotted
from launcher.parsing.foreign_keys import as_list, as_mapping, place_of
from launcher.spec.channels import KINDS
from launcher.spec.job import JobSpec
from launcher.spec.model import Section, section_of
from launcher.spec.values import WRONG_TYPE

_OF_NO_NULL = ("literal_error", "bool_type")
_MANY_KEYS = 15  # a longer list is not shown in a message
# The place in the spec, pydantic's error, and the value that was validated.
_WrongValue = tuple[SpecPath, Mapping[str, Any], Mapping[str, Any]]


def validated(value: Mapping[str, Any]) -> tuple[JobSpec, list[_WrongValue]]:
    """Return the spec of everything valid in `value`, and pydantic's errors for the rest.

    Invalid values are removed and the rest is validated again, until it is valid; each round removes at least one.
    """
    wrong: list[_WrongValue] = []
    while True:
        try:
            return JobSpec.model_validate(value), wrong
        except ValidationError as error:
            # The keys of a channel of unknown kind cannot be validated: its error is at the channel, which is removed.
            found = [(_spec_path(each["loc"]), each, value) for each in error.errors(include_url=False)]
            lists = {path[:-1] for path, _, _ in found if path and isinstance(path[-1], int)}
            # `extends` may be a text or a list: a wrong item of its list makes pydantic report the list as no text, too.
            found = [each for each in found if each[0] not in lists]
            # null removes a value, so a field that has no null has its default again.
            wrong += [each for each in found if each[1]["input"] is not None or each[1]["type"] not in _OF_NO_NULL]
            value = without(value, [path for path, _, _ in found])


def without(value: Any, paths: list[SpecPath]) -> Any:
    """Return a copy of `value` without `paths`; if an item is removed, its whole list is, since order may matter."""
    below: dict[str | int, list[SpecPath]] = {}
    dropped = set()
    for path in paths:
        inner = value.get(path[0])
        if len(path) > 1 and isinstance(inner, dict) and path[1] in inner:
            below.setdefault(path[0], []).append(path[1:])
        else:
            dropped.add(path[0])
    kept = {key: item for key, item in value.items() if key not in dropped}
    return kept | {key: without(kept[key], paths) for key, paths in below.items() if key in kept}


def problem_of(details: Mapping[str, Any], value: Mapping[str, Any]) -> Problem:
    """Translate one of pydantic's errors."""
    path = _spec_path(details["loc"])
    match details["type"]:
        case "extra_forbidden":
            known = _known_keys(path[:-1], value)
            hint, meant = suggestion(path, known) or (_all_keys(path, known), ())
            meant = meant[:1] if meant[:1] and value.get(str(meant[0])) is None else meant
            return Problem(path, f"is not a key of {_section_name(path[:-1])}; {hint}", "unknown-key", meant=meant)
        case "string_type":
            return Problem(path, "has no value; write it, or '' for an empty text", WRONG_TYPE)
        case "union_tag_invalid":
            source = details["ctx"]["tag"]
            near, kinds = did_you_mean(source, KINDS), ", ".join(KINDS)
            message = f"{source!r} is not a kind of channel{near}; write one of {kinds}"
            return Problem((*path, "source"), message, "unknown-source")
        case "model_type" | "model_attributes_type" | "dict_type":
            advice = as_mapping(path, details["input"])
            message = f"{_description(details['input'])}, but a mapping of `key: value` belongs here{advice}"
            return Problem(path, message, WRONG_TYPE)
        case "tuple_type" | "list_type":
            dash = str(details["input"]).startswith("-")
            example = "; write a space after the '-' of an item" if dash else f", {as_list(path, details['input'])}"
            return Problem(path, f"{_description(details['input'])}, but a list belongs here{example}", WRONG_TYPE)
        case "literal_error":
            given = "null" if details["input"] is None else str(details["input"])
            expected = details["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            message = f"{given!r} is not one of {', '.join(expected)}{did_you_mean(given, expected)}"
            return Problem(path, message, "unknown-value")
        case kind:
            return Problem(path, details["msg"], kind if kind == WRONG_TYPE else "invalid-value")


def suggestion(path: SpecPath, known: list[str]) -> tuple[str, SpecPath] | None:
    """Return what to write instead of an unknown key, and the place that was probably meant; None if nothing is near."""
    if (elsewhere := place_of(path, known)) is not None:
        return elsewhere
    mappings, key = _mappings_by_key(), str(path[-1])
    if key in mappings and (len(path) == 1 or path[0] != "channels"):
        return f"it belongs under {' or '.join(mappings[key])}", ()
    if len(path) > 1 and key in JobSpec.model_fields:
        return "it belongs at the top of the spec", ()
    if near := errors.nearest(key, known):
        return f"did you mean {near}?", (*path[:-1], near)
    if len(path) == 1 and (inner := errors.nearest(key, mappings)):
        return f"did you mean {inner} under {' or '.join(mappings[inner])}?", ()
    return None


def _all_keys(path: SpecPath, known: list[str]) -> str:
    every = "`launch --schema` prints all keys"
    if len(path) == 1:
        return f"write a setting of the script under hyperparameters; {every}"
    return f"its keys are {', '.join(known)}" if len(known) <= _MANY_KEYS else every


def _spec_path(loc: tuple[str | int, ...]) -> SpecPath:
    """Return pydantic's location without what it adds: a channel's or image's kind, and `[key]` for a problem of a key."""
    path = loc[:-1] if loc[-1:] == ("[key]",) else loc
    if path[:1] == ("extends",):
        return (*path[:1], *(part for part in path if isinstance(part, int)))
    if path[:1] == ("image",):
        return path[:1] + path[2:]
    return path[:2] + path[3:] if path[:1] == ("channels",) else path


def _mappings_by_key() -> Mapping[str, Iterable[str]]:
    """Return the names of the mappings in which each key may be written, except those in lists."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for name, field in JobSpec.model_fields.items():
        section = section_of(field.annotation)
        for key in section.model_fields if section and section in get_args(field.annotation) else ():
            found[key][name] = None
    for kind in KINDS.values():
        for key in kind.model_fields:
            found[key]["a channel"] = None
    return found


def _section_name(path: SpecPath) -> str:
    if path and isinstance(path[-1], int):
        return dotted(path[-2:])
    return "a spec" if not path else "a channel" if path[0] == "channels" and len(path) == 2 else str(path[-1])


def _known_keys(path: SpecPath, value: Mapping[str, Any]) -> list[str]:
    model: type[Section] | None = JobSpec
    if path[:1] == ("channels",):
        channel = value["channels"][path[1]]
        model, path = KINDS.get(str(channel.get("source", "S3")), KINDS["S3"]), path[2:]
    for part in path:
        if model and isinstance(part, str):
            model = section_of(model.model_fields[part].annotation)
    return list(model.model_fields) if model else []


def _description(value: Any) -> str:
    if value is None:
        return "has no value"
    if isinstance(value, dict):
        return "is a mapping"
    shown = str(value) if len(str(value)) <= 60 else f"{str(value)[:57]}..."
    return "is a list" if isinstance(value, list) else f"is {shown!r}"
