"""From YAML text to a JobSpec, or to one error with every problem at its file, line and column.

If keys or types are wrong, the rest of the spec is still checked against AWS's rules, so that one run reports everything.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from launcher import errors
from launcher.errors import InputError, Problem, SpecError, SpecPath, did_you_mean, dotted
from launcher.parsing.foreign_keys import as_list, as_mapping, place_of
from launcher.parsing.layers import Assignment, is_within, read_bytes, read_layers
from launcher.parsing.spec_text import MAX_BYTES, is_spec
from launcher.parsing.tree import Tree
from launcher.rules import find_problems
from launcher.rules.codes import without_ignored
from launcher.spec.channels import KINDS
from launcher.spec.job import JobSpec
from launcher.spec.model import Section, section_of
from launcher.spec.values import WRONG_TYPE, Plain

_MANY_KEYS = 15  # a longer list is not shown in a message
_WRONG_FORMS = {"model_type", "model_attributes_type", "dict_type", "tuple_type", "list_type"}
# The place in the spec, pydantic's error, and the value that was validated.
_WrongValue = tuple[SpecPath, Mapping[str, Any], Mapping[str, Any]]


def load(
    path: str | Path,
    *,
    sets: Sequence[str | Assignment] = (),
    values: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> JobSpec:
    """Read a spec from a file, or from standard input for `-`.

    Args:
        path: The YAML or JSON file.
        sets: Assignments `path=value`, as after `--set`, or those of a command.
        values: Further values by path, such as {"hyperparameters.epochs": 3}.
        environ: The variables for `${NAME}` and of the files below the spec; this process's own by default.

    Raises:
        SpecError: With every problem found.
        InputError: If the file cannot be read.
    """
    environ = os.environ if environ is None else environ
    if str(path) == "-":
        return parse_spec(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>", sets=sets, values=values, environ=environ)
    try:
        data = read_bytes(Path(path))
    except OSError as error:
        near = errors.did_you_mean_path(path, is_spec) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{path}: cannot be read: {error.strerror}{near or '; check the path'}") from None
    return parse_spec(data, str(path), sets=sets, values=values, environ=environ)


def parse_spec(
    spec: str | bytes | Mapping[str, Any],
    file: str = "<text>",
    *,
    sets: Sequence[str | Assignment] = (),
    values: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> JobSpec:
    """Parse a spec from text or from data.

    Args:
        spec: The YAML or JSON text, in UTF-8 if bytes; or its keys and values.
        file: The name shown in problems; paths in `extends` start at its folder.
        sets: Assignments `path=value`, as after `--set`, or those of a command.
        values: Further values by path, such as {"hyperparameters.epochs": 3}.
        environ: The variables for `${NAME}` and of the files below the spec; without it, there are none of either.

    Raises:
        SpecError: With every problem found, in the file's order.
    """
    from launcher.parsing.team import read_team  # whose files are parsed by this module

    below, team = (None, None) if environ is None else read_team(file, environ)
    tree, variables = read_layers(spec, file, sets, values or {}, environ or {}, below)
    if not isinstance(tree.value, dict):
        message = "is not a mapping; write a spec of `key: value` lines"
        raise SpecError([Problem((), message, WRONG_TYPE, location=tree.locate(()))])
    parsed, found = validated(tree.value)
    parsed._locate, parsed._variables, parsed._team = tree.locate, variables, team
    if not found and not tree.problems:
        return parsed
    # Messages for thousands of problems would be slow, since each looks for the nearest known name.
    first = sorted(found, key=lambda each: errors.place_order(tree.locate(each[0])))[: errors.MAX_REPORTED]
    problems = [_located(problem_of(details, value), details, tree) for _, details, value in first]
    # A list with a wrong item was left out as a whole, so the rules cannot check it.
    wrong = [*(path for path, _, _ in found), *(problem.meant for problem in problems if problem.meant)]
    judged = {tuple(takewhile(lambda part: isinstance(part, str), path)) for path in wrong}
    # If a value has the wrong form, or a file to extend is missing, the keys that seem to be missing may be in it.
    holed = {path[:-1] for path, details, _ in found if details["type"] in _WRONG_FORMS and len(path) > 1}
    by_rules = [] if ("extends",) in judged else without_ignored(find_problems(parsed, unknown=judged), parsed, ())
    more = [
        problem if problem.location else problem._replace(location=tree.locate(problem.path))
        for problem in by_rules
        if not (is_within(problem.path, judged) or (problem.path[:-1] in holed and problem.path not in tree.places))
    ]
    known = {problem.location for problem in tree.problems}  # other problems at these places follow from these
    problems = [problem for problem in problems + more if problem.location not in known]
    masked = list(variables.mask_problems(problems + tree.problems))
    ordered = errors.without_repetitions(errors.in_file_order(masked))
    raise SpecError(errors.limit_problems(ordered, len(found) - len(first)))


def _located(problem: Problem, details: Mapping[str, Any], tree: Tree) -> Problem:
    """Return the problem with its location, and with a remedy that depends on the line."""
    at, written = tree.locate(problem.path), details["input"]
    if isinstance(written, Plain) and problem.path in tree.below:
        missing = "; write a space after its ':'" if re.match(r"[\w.-]+:[^\s/]", written) else ""
        return problem._replace(message=problem.message + missing, location=tree.below[problem.path])
    if written is None and re.search(r":\s+#", at.text[at.column - 1 :]):
        problem = problem._replace(message=f"{problem.message}; ' #' begins a comment, so put a text with it in quotes")
    return problem._replace(location=at)


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
            # null removes a value, so a field with a fixed set of values has its default again.
            wrong += [each for each in found if (each[1]["type"], each[1]["input"]) != ("literal_error", None)]
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
            hint, meant = _suggestion(path, _known_keys(path[:-1], value))
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


def _suggestion(path: SpecPath, known: list[str]) -> tuple[str, SpecPath]:
    """Return what to write instead of an unknown key, and the place that was probably meant."""
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
    return (f"its keys are {', '.join(known)}" if len(known) <= _MANY_KEYS else "`launch --schema` prints all keys"), ()


def _spec_path(loc: tuple[str | int, ...]) -> SpecPath:
    """Return pydantic's location without what it adds: a channel's or image's kind, and `[key]` for a problem of a key."""
    path = loc[:-1] if loc[-1:] == ("[key]",) else loc
    if path[:1] == ("extends",):
        return (*path[:1], *(part for part in path if isinstance(part, int)))
    if path[:1] == ("image",):
        return path[:1] + path[2:]
    return path[:2] + path[3:] if path[:1] == ("channels",) and len(path) > 2 and path[2] in KINDS else path


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
    """Return the keys that the mapping at `path` may have."""
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
