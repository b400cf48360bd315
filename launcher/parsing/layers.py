"""The layers of a spec: the team's files, those that it extends, the file itself, `--set`, and the values of `${VARIABLES}`.

Later layers win: mappings are merged key by key, any other value is replaced. A channel with another `source` keeps the keys that
the new kind has. Each value keeps its location, so that a problem is reported in the right file, or at the right `--set`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from launcher.bundled import is_template
from launcher.errors import Location, Problem, SpecError, SpecPath, did_you_mean_path, dotted
from launcher.parsing.environment import resolved
from launcher.parsing.spec_text import MAX_BYTES, are_of_a_spec, checked_text, first_keys
from launcher.parsing.tree import MAX_DEPTH, NULLS, Tree, as_written, read_tree, tree_of
from launcher.spec.channels import KINDS, source_of
from launcher.spec.values import Plain
from launcher.spec.variables import Variables

ANCHORS = "x-"  # begins the keys at the top that are left out
_EXTENDS = "extends"
_MAX_NAME = 1000  # characters
_MAX_FILES = 50  # of one spec; a file counts as often as it is extended
_QUOTED = r"\"(?:[^\"\\]|\\[\"\\/bfnrt]|\\u[0-9a-fA-F]{4})+\""  # as JSON quotes a text
_NAME = rf"(?:{_QUOTED}|[^.\[\]\"=]+)"
_STEPS = rf"{_NAME}(?:\.{_NAME}|\[[0-9]{{1,6}}\])*"
_STEP = rf"({_QUOTED})|\[([0-9]+)\]|([^.\[\]\"=]+)"
# Mappings whose keys the user chooses: null in an upper layer deletes a key of the lower one.
_OF_USERS: tuple[SpecPath, ...] = (("channels",), ("hyperparameters",), ("environment",), ("tags",), ("bucket_owners",))


class Assignment(NamedTuple):
    """What a command sets, in place of a `--set` of the user's."""

    path: str
    value: Any  # data; a `Plain` is read as after `--set path=`
    source: str  # what the user wrote that leads to it, such as --hosts


Sets: TypeAlias = Sequence[str | Assignment]  # of which a text is what follows `--set`


def read_layers(
    spec: str | bytes | Mapping[str, Any],
    file: str,
    sets: Sets,
    values: Mapping[str, Any],
    environ: Mapping[str, str],
    team: Tree | None = None,
) -> tuple[Tree, Variables]:
    """Return the merged tree of a spec over the team's, and its texts that name variables. Raises SpecError."""
    tree = _merge_bases(_read(spec, file), (), environ, iter(range(_MAX_FILES)))
    if isinstance(tree.value, dict):
        if team is not None:
            # The role, image and machine of a command's own spec only stand for the user's.
            tree = merge_trees(team, tree) if is_template(file) else merge_trees(tree, team)
        assign(tree, sets)
        for path, value in values.items():
            place = _option(path, path)
            _assign(tree, _steps(path, place), as_written(value, place.file), place)
    _expand_bare_uris(tree)
    variables = Variables()
    tree.value = resolved(tree.value, (), tree, environ, variables)
    return tree, variables


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, at most one more than a spec may have, since a device may never end. Raises OSError."""
    if Path(os.path.realpath(path)).is_fifo():
        raise OSError(None, "it is a named pipe; pipe the spec into `launch -` instead")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _read(spec: str | bytes | Mapping[str, Any], file: str) -> Tree:
    tree = tree_of(spec, file) if isinstance(spec, Mapping) else read_tree(spec, file)
    if tree.value is None:
        raise tree.empty()
    if isinstance(tree.value, dict):  # keys such as x-data are only places for anchors, as in Compose files
        tree.value = {key: value for key, value in tree.value.items() if not key.startswith(ANCHORS)}
    _expand_bare_uris(tree)
    return tree


class _NotASpecError(Exception):
    """A file to extend is something else, so its lines are not quoted: they may be secrets of the reader's machine."""


def _read_spec(text: bytes, file: str) -> Tree:
    """Read a file to extend. Raises _NotASpecError if at most half of its keys are a spec's, and SpecError."""
    try:
        tree = _read(text, file)
    except SpecError as error:
        if not are_of_a_spec(first_keys(text)) and error.problems[0].code != "yaml-empty":
            raise _NotASpecError from None
        raise
    if not isinstance(tree.value, dict) or not are_of_a_spec(tree.value):
        raise _NotASpecError
    return tree


def _expand_bare_uris(tree: Tree) -> None:
    """Expand channels written as a bare URI to mappings, so that other layers can add keys to them."""
    channels: Any = tree.value.get("channels") if isinstance(tree.value, dict) else None
    for name, channel in channels.items() if isinstance(channels, dict) else ():
        if isinstance(channel, str):
            channels[name] = {"s3_uri": channel}
            if (place := tree.below.get(("channels", name))) is not None:
                tree.places["channels", name, "s3_uri"] = place


def _merge_bases(tree: Tree, above: tuple[str, ...], environ: Mapping[str, str], files: Iterator[int]) -> Tree:
    """Merge the tree over the files that it extends, of which later ones win; each file takes an item of `files`."""
    named = tree.value.get(_EXTENDS) if isinstance(tree.value, dict) else None
    if named is None:
        return tree
    lower = Tree(tree.file, {})
    above = (*above, os.path.realpath(tree.file))
    place = tree.locate((_EXTENDS,))
    refused = partial(_refused, (_EXTENDS,), place)
    for written in named if isinstance(named, list) else [named]:
        scratch = Tree(tree.file, places={(): place})
        name = resolved(written, (_EXTENDS,), scratch, environ)
        tree.problems += scratch.problems
        if scratch.problems or not isinstance(name, str):
            continue  # reported later, as a value of a wrong type
        if len(name) > _MAX_NAME:
            raise refused(f"is not a path, since it has more than {_MAX_NAME:,} characters; shorten it")
        if re.match(r"[a-z][a-z0-9]*://", name):
            raise refused(f"{_shown(written)} is not a local file; download it, and write its path")
        path = Path(tree.file).parent / name
        if os.path.realpath(path) in above:
            raise refused(f"{_shown(written)} extends this file in turn; remove one of the two")
        if next(files, None) is None:
            raise refused(f"reads more than {_MAX_FILES} files; extend fewer")
        shown = _shown(str(Path(tree.file).parent / written))
        try:
            base = _read_spec(read_bytes(path), str(path))
        except _NotASpecError:
            advice = "so its lines are not shown; check the path, and the file's keys"
            raise refused(f"{shown} does not look like a spec, {advice}") from None
        except OSError as error:
            near = did_you_mean_path(path) if isinstance(error, FileNotFoundError) else ""
            message = f"{shown} cannot be read: {error.strerror}; write a path relative to this file{near}"
            raise refused(message) from None
        lower = merge_trees(_merge_bases(base, above, environ, files), lower)
    return merge_trees(tree, lower)


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def merge_trees(upper: Tree, lower: Tree) -> Tree:
    """Merge two trees, of which the upper wins; locations follow the values."""
    replaced: set[SpecPath] = set()
    value = _merged(upper.value, lower.value, (), replaced)
    kept = {path: at for path, at in lower.places.items() if not is_within(path, replaced)}
    problems = [*lower.problems, *upper.problems]
    return Tree(upper.file, value, kept | upper.places, problems, upper.lines, below=lower.below | upper.below)


def _merged(upper: Any, lower: Any, path: SpecPath, replaced: set[SpecPath]) -> Any:
    """Merge two values; add to `replaced` the places at which nothing of the lower is left."""
    if isinstance(upper, dict) and isinstance(lower, dict):
        result = dict(lower)
        for key in _of_other_source(upper, lower, path):
            del result[key]
            replaced.add((*path, key))
        for key, value in upper.items():
            if value is None and key in lower and path in _OF_USERS:
                del result[key]
                replaced.add((*path, key))
            else:
                result[key] = _merged(value, lower[key], (*path, key), replaced) if key in lower else value
        return result
    replaced.add(path)
    return upper


def _of_other_source(upper: dict[str, Any], lower: dict[str, Any], path: SpecPath) -> list[str]:
    """Return the keys of the lower layer's channel that do not fit the other `source` in the upper one, if it states one."""
    source = upper.get("source")
    is_changed = len(path) == 2 and path[0] == "channels" and source != source_of(lower)
    if not is_changed or not isinstance(source, str) or source not in KINDS:
        return []
    return [key for key in lower if key not in KINDS[source].model_fields or key == "input_mode"]


def is_within(path: SpecPath, places: set[SpecPath]) -> bool:
    return any(path[:length] in places for length in range(len(path) + 1))


def assign(tree: Tree, sets: Sets) -> None:
    """Set the keys of `path=value` texts, each of which can be one of `--set`. Raises SpecError."""
    for each in sets:
        if isinstance(each, Assignment):
            name, value, place = each.path, each.value, Location(each.source, 0, 0)
        else:
            path, equals, text = partition(each)
            name, value, place = path if equals else "", Plain(text), _option(path, each)
        steps = _steps(name, place)
        if isinstance(value, Plain):
            given = _parse_set_value(value, steps, place)
            value = given.value
            tree.problems += given.problems
        elif isinstance(value, str):
            checked_text(value, place.file)
        _assign(tree, steps, as_written(value, place.file), place)


def _option(name: str, text: str) -> Location:
    """Return the place of a `--set` of this path, written as messages write it."""
    return Location(f"--set {dotted(steps_of(name)) or name}", 1, 1, text)


def partition(assignment: str) -> tuple[str, str, str]:
    """Return path, `=` and value of `path=value`, whose path can have quoted keys with `=` in them."""
    path = re.match(rf"{_STEPS}(?==)", assignment)
    return (path[0], "=", assignment[path.end() + 1 :]) if path else assignment.partition("=")


def steps_of(name: str) -> SpecPath:
    """Return the path that `hyperparameters.epochs` means, as `dotted` writes it; an empty one for a text that is no path."""
    steps: SpecPath = tuple(
        json.loads(quoted, strict=False) if quoted else int(index) if index else key
        for quoted, index, key in re.findall(_STEP, name)
    )
    return steps if re.fullmatch(_STEPS, name) and len(steps) <= MAX_DEPTH else ()


def _steps(name: str, place: Location) -> SpecPath:
    """Raises SpecError."""
    steps = steps_of(name)
    if not steps:
        raise _refused((), place, "is not path=value, such as resource_config.instance_count=2")
    if steps[0] == _EXTENDS:
        raise _refused(steps, place, "cannot be set, since the files are read before; write it in the spec")
    return steps


def _assign(tree: Tree, steps: SpecPath, value: Any, place: Location) -> None:
    """Set a value, which then counts as written at `place`."""
    try:
        if (value is None and steps[:-1] in _OF_USERS) or steps[-1] == "source":
            tree.value = _merged(with_value({}, steps, value), tree.value, (), set())
        else:
            tree.value = with_value(tree.value, steps, value)
    except LookupError:
        message = "cannot be set: --set adds keys, but not items of a list; set the whole list"
        raise _refused(steps, place, message) from None
    tree.places = {path: at for path, at in tree.places.items() if path[: len(steps)] != steps}
    for length in range(1, len(steps) + 1):
        tree.places.setdefault(steps[:length], place)


def _parse_set_value(text: str, steps: SpecPath, place: Location) -> Tree:
    """Parse the value of a `--set`: as YAML if it begins like a list, mapping or quoted text, else as plain text.

    In plain text, `#`, `: ` and line breaks have no meaning. Raises SpecError.
    """
    if not text:
        raise _refused(steps, place, "has no value; write '' in quotes for an empty text, or null for none")
    if text[0] not in "[{\"'":
        checked_text(text, place.file)
        return Tree(place.file, None if text in NULLS else Plain(text))
    try:
        if " #" in text:
            read_tree(f"[{text}]", place.file)  # fails if the '#' begins a comment: then the bracket is never closed
        return read_tree(text, place.file)
    except SpecError as error:
        first = error.problems[0]
        quoted = f"; for a text, write {json.dumps(text, ensure_ascii=False)}" if len(text) <= 60 else ""
        raise _refused(steps, place, f"{first.message}{quoted}") from None


def with_value(level: Any, steps: SpecPath, value: Any) -> Any:
    """Return a copy of `level` with `value` at `steps`; missing mappings are added. Raises LookupError for list items."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = list(level) if isinstance(level, list) else []
        items[step] = with_value(items[step], rest, value)
        return items
    if isinstance(level, list):
        raise LookupError(step)
    mapping = level if isinstance(level, dict) else {}
    return {**mapping, step: with_value(mapping.get(step), rest, value)}


def _refused(path: SpecPath, place: Location, message: str) -> SpecError:
    return SpecError([Problem(path, message, "spec-layer", location=place)])
