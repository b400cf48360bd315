"""YAML text -> JobSpec; every problem with file, line and column, all at once.

Where the file has problems of shape, what is left without the wrong parts is still checked against AWS's rules, so that
one run names all there is to mend.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, get_args

from launcher.channels import KINDS
from launcher.checks import check_spec
from launcher.codes import without_ignored
from launcher.errors import MAX_TOLD, InputError, Path, Problem, SpecError, cut, dotted, in_file_order, place_order
from launcher.foreign import as_list, as_mapping, place_of
from launcher.layers import read_bytes, read_layers
from launcher.nearest import did_you_mean, nearest
from launcher.reading import Misfit, is_part, read_part
from launcher.spec import JobSpec
from launcher.values import WRONG_TYPE, Plain
from launcher.yaml_text import MAX_BYTES
from launcher.yaml_tree import Tree, once_each

_MANY_KEYS = 15  # more than this nobody reads


def load(path: str | FilePath, *, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> JobSpec:
    """Read a spec from a file, or from standard input for `-`.

    `sets` are `path=value` as after `--set`; `environ` is what `${NAME}` is looked up in, this process's own unless given.
    Raises SpecError with every problem found, and InputError where the file cannot be read.
    """
    environ = os.environ if environ is None else environ
    if str(path) == "-":
        return parse_spec(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>", sets=sets, environ=environ)
    try:
        data = read_bytes(FilePath(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    return parse_spec(data, str(path), sets=sets, environ=environ)


def parse_spec(
    text: str | bytes, file: str = "<text>", *, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> JobSpec:
    """Parse a spec, with `${NAME}` looked up in `environ`. Raises SpecError with every problem, in the file's order."""
    tree, veiled = read_layers(text, file, sets, environ or {})
    if not isinstance(tree.value, dict):
        location = tree.locate(())
        raise SpecError(
            [Problem((), "is not a mapping; a spec is made of `key: value` lines", WRONG_TYPE, location=location)]
        )
    spec, misfits = read_part(JobSpec, tree.value)
    spec._locate, spec._veiled = tree.locate, veiled
    if not misfits and not tree.problems:
        return spec
    # Words for each of thousands, with the nearest name of all that are known, would take their time.
    first = sorted(misfits, key=lambda each: place_order(tree.locate(each.path)))[:MAX_TOLD]
    problems = [_located(_problem(each, tree.value), each.value, tree) for each in first]
    # Of a list with a wrong item nothing is left to judge.
    judged = {
        _up_to_list(place) for place in (*(each.path for each in misfits), *(each.meant for each in problems)) if place
    }
    # What stood in a list or a mapping of a wrong form may be what is missing beside it, or in what a file was to bring.
    holed = {each.path[:-1] for each in misfits if each.kind in ("mapping", "list") and len(each.path) > 1}
    more = [
        problem if problem.location else replace(problem, location=tree.locate(problem.path))
        for problem in without_ignored(check_spec(spec), spec, ())
        if not (_within(problem.path, judged) or (problem.path[:-1] in holed and problem.path not in tree.places))
    ]
    if "extends" in {each.path[0] for each in misfits}:
        more = []
    known = {problem.location for problem in tree.problems}  # what else is wrong there follows from it
    problems = [problem for problem in problems + more if problem.location not in known]
    raise SpecError(cut(once_each(in_file_order(problems + tree.problems)), len(misfits) - len(first)))


def _located(problem: Problem, written: Any, tree: Tree) -> Problem:
    """The problem at its place, with a remedy that only the place tells."""
    at = tree.locate(problem.path)
    if isinstance(written, Plain) and problem.path in tree.below:
        missing = "; it has no space behind its ':'" if re.match(r"[\w.-]+:[^\s/]", written) else ""
        return replace(problem, message=problem.message + missing, location=tree.below[problem.path])
    if written is None and at and re.search(r":\s+#", at.text[at.column - 1 :]):
        problem = replace(problem, message=f"{problem.message}; ' #' begins a comment, so put such a text in quotes")
    return replace(problem, location=at)


def _up_to_list(path: Path) -> Path:
    return next((path[:index] for index, part in enumerate(path) if isinstance(part, int)), path)


def _within(path: Path, places: set[Path]) -> bool:
    return any(path[:length] in places for length in range(1, len(path) + 1))


def _problem(misfit: Misfit, spec: Mapping[str, Any]) -> Problem:
    """A misfit in words."""
    path, value = misfit.path, misfit.value
    match misfit.kind:
        case "unknown-key":
            hint, meant = _instead(path, misfit.known)
            meant = meant[:1] if meant[:1] and spec.get(str(meant[0])) is None else meant
            return Problem(path, f"is not a key of {_called(path[:-1])}; {hint}", "unknown-key", meant=meant)
        case "unknown-source":
            source = str(value["source"])
            message = f"{source!r} is no kind of channel{did_you_mean(source, KINDS)}; one of {', '.join(KINDS)}"
            return Problem((*path, "source"), message, "unknown-source")
        case "mapping" if path == ("code",):
            return Problem(path, f"{_what(value)}; write {{directory: FOLDER, entry_point: SCRIPT}}", WRONG_TYPE)
        case "mapping":
            message = f"{_what(value)}, but a mapping of `key: value` belongs here{as_mapping(path, value)}"
            return Problem(path, message, WRONG_TYPE)
        case "list":
            dash = str(value).startswith("-")
            example = "; behind the '-' of an item comes a space" if dash else f", {as_list(path, value)}"
            return Problem(path, f"{_what(value)}, but a list belongs here{example}", WRONG_TYPE)
        case "one-of":
            given = "null" if value is None else str(value)
            message = f"{given!r} is not one of {', '.join(misfit.known)}{did_you_mean(given, misfit.known)}"
            return Problem(path, message, "unknown-value")
        case "wrong-type":
            return Problem(path, misfit.message, WRONG_TYPE)


def _instead(path: Path, known: Sequence[str]) -> tuple[str, Path]:
    """What to write instead of a key that the mapping around it lacks, and the place that was probably meant."""
    elsewhere = place_of(path, known)
    if elsewhere is not None:
        return elsewhere
    where = _mappings_with(str(path[-1]))
    if where and (len(path) == 1 or path[0] != "channels"):
        return f"it belongs under {' or '.join(where)}", ()
    if len(path) > 1 and str(path[-1]) in JobSpec.fields():
        return "it belongs at the top of the spec", ()
    near = nearest(str(path[-1]), known)
    if near:
        return f"did you mean {near}?", (*path[:-1], near)
    return (
        f"known here: {', '.join(known)}" if len(known) <= _MANY_KEYS else "`launch --schema` has those that are"
    ), ()


def _mappings_with(key: str) -> list[str]:
    """The mappings of a spec in which a key has its place."""
    parts = [(name, part) for name, field in JobSpec.fields().items() for part in get_args(field.annotation)]
    found = [name for name, part in parts if is_part(part) and key in part.fields()]
    return found + ["a channel"] * any(key in kind.fields() for kind in KINDS.values())


def _called(path: Path) -> str:
    if path and isinstance(path[-1], int):
        return dotted(path[-2:])
    return "a spec" if not path else "a channel" if path[0] == "channels" and len(path) == 2 else str(path[-1])


def _what(value: Any) -> str:
    if value is None:
        return "has no value"
    if isinstance(value, dict):
        return "is a mapping"
    shown = str(value) if len(str(value)) <= 60 else f"{str(value)[:57]}..."
    return "is a list" if isinstance(value, list) else f"is {shown!r}"
