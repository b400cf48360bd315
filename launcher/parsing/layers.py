"""A spec from its layers: the files that it extends, the file itself, what `--set` says, and `${VARIABLES}`.

Later layers win: mappings are merged key by key, everything else takes the place of what was there. Each value keeps the
place it came from, so that a problem is told in the right file, or at the right `--set`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.errors import Location, Problem, SpecError, SpecPath
from launcher.nearest import did_you_mean_path
from launcher.parsing.text import MAX_BYTES, checked_text
from launcher.parsing.tree import MAX_DEPTH, NULLS, Tree, empty, read_tree
from launcher.spec.values import Plain, as_text

EXTENDS = "extends"
MAX_NAME = 1000
MAX_FILES = 50  # that a spec is made of, each counted as often as it is extended
_VARIABLE = re.compile(r"\$(\$(?=\{)|\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-((?:[^}$]|\$(?!\{))*))?\})?)")
_NAME = r"(?:\"[^\"]+\"|[^.\[\]\"=]+)"
_STEPS = rf"{_NAME}(?:\.{_NAME}|\[[0-9]{{1,6}}\])*"
_STEP = r"\"([^\"]+)\"|\[([0-9]+)\]|([^.\[\]\"=]+)"
# Settings may hold secrets, so a dry run shows their variables by name: the places in a spec -> the request's member.
_SETTINGS: dict[SpecPath, str] = {
    ("environment",): "Environment",
    ("hyperparameters",): "HyperParameters",
    ("request", "Environment"): "Environment",
    ("request", "HyperParameters"): "HyperParameters",
}
_WHOLE = {("request",), *_SETTINGS}
# Mappings whose keys are the user's own: null in an upper layer takes one of the lower's away.
_OF_USERS: tuple[SpecPath, ...] = (("channels",), ("hyperparameters",), ("environment",), ("tags",))
MaskedSettings = dict[tuple[str, str], str]  # (member, name) -> the setting as written, its variables unresolved


def read_layers(
    text: str | bytes, file: str, sets: Sequence[str], environ: Mapping[str, str]
) -> tuple[Tree, MaskedSettings]:
    """The whole tree of a spec, and its settings that name variables. Raises SpecError."""
    tree = _extended(_read(text, file), (), environ, iter(range(MAX_FILES)))
    for assignment in sets if isinstance(tree.value, dict) else ():
        _assign(tree, assignment)
    _spell_out(tree)
    masked = _masked(tree.value)
    tree.value = _resolved(tree.value, (), tree, environ)
    return tree, masked


def read_bytes(path: Path) -> bytes:
    """A file of a spec, up to one byte more than is taken: what never ends is cut. Raises OSError."""
    if Path(os.path.realpath(path)).is_fifo():
        raise OSError(None, "it is a named pipe; pipe the spec into `launch -` instead")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _read(text: str | bytes, file: str) -> Tree:
    tree = read_tree(text, file)
    if tree.value is None:
        raise empty(file)
    _spell_out(tree)
    return tree


def _spell_out(tree: Tree) -> None:
    """Write a channel's shorthand out, so that other layers can add to it."""
    channels: Any = tree.value.get("channels") if isinstance(tree.value, dict) else None
    for name, channel in channels.items() if isinstance(channels, dict) else ():
        if isinstance(channel, str):
            channels[name] = {"s3_uri": channel}
            if (place := tree.below.get(("channels", name))) is not None:
                tree.places["channels", name, "s3_uri"] = place


def _extended(tree: Tree, above: tuple[str, ...], environ: Mapping[str, str], files: Iterator[int]) -> Tree:
    """The tree laid over the files that it extends, the first of which is the lowest; `files` is how many are left."""
    named = tree.value.get(EXTENDS) if isinstance(tree.value, dict) else None
    if named is None:
        return tree
    lower = Tree(tree.file, {})
    above = (*above, os.path.realpath(tree.file))
    for written in named if isinstance(named, list) else [named]:
        place = tree.locate((EXTENDS,))
        scratch = Tree(tree.file, places={(): place} if place else {})
        name = _resolved(written, (EXTENDS,), scratch, environ)
        tree.problems += scratch.problems
        if scratch.problems or not isinstance(name, str):
            continue  # told as a value of a wrong type
        if len(name) > MAX_NAME:
            raise _refused((EXTENDS,), f"is no path, since it has more than {MAX_NAME:,} characters", place)
        if re.match(r"[a-z][a-z0-9]*://", name):
            raise _refused(
                (EXTENDS,), f"{_shown(name)} is no file of this machine; fetch it, and write its path", place
            )
        path = Path(tree.file).parent / name
        if os.path.realpath(path) in above:
            raise _refused((EXTENDS,), f"{_shown(name)} extends this file in turn; end the circle", place)
        if next(files, None) is None:
            raise _refused((EXTENDS,), f"brings more than {MAX_FILES} files together; extend fewer", place)
        try:
            base = _read(read_bytes(path), str(path))
        except OSError as error:
            near = did_you_mean_path(path) if isinstance(error, FileNotFoundError) else ""
            message = f"{_shown(str(path))} cannot be read: {error.strerror}; paths start at this file{near}"
            raise _refused((EXTENDS,), message, place) from None
        if not isinstance(base.value, dict):
            raise _refused((EXTENDS,), f"{_shown(str(path))} is not a mapping, so nothing can extend it", place)
        lower = _laid_over(_extended(base, above, environ, files), lower)
    return _laid_over(tree, lower)


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _laid_over(upper: Tree, lower: Tree) -> Tree:
    """The upper tree's keys over the lower's; places follow the values."""
    replaced: set[SpecPath] = set()
    value = _merged(upper.value, lower.value, (), replaced)
    places = {path: at for path, at in lower.places.items() if not _is_below(path, replaced)} | upper.places
    problems = [*lower.problems, *upper.problems]
    return Tree(upper.file, value, places, problems, upper.lines, below={**lower.below, **upper.below})


def _merged(upper: Any, lower: Any, path: SpecPath, replaced: set[SpecPath]) -> Any:
    """The values of both; `replaced` gets the places at which nothing of the lower is left."""
    if isinstance(upper, dict) and isinstance(lower, dict):
        result = dict(lower)
        for key, value in upper.items():
            if value is None and key in lower and path in _OF_USERS:
                del result[key]
                replaced.add((*path, key))
            else:
                result[key] = _merged(value, lower[key], (*path, key), replaced) if key in lower else value
        return result
    replaced.add(path)
    return upper


def _is_below(path: SpecPath, places: set[SpecPath]) -> bool:
    return any(path[:length] in places for length in range(len(path) + 1))


def _assign(tree: Tree, assignment: str) -> None:
    """One `--set path=value`."""
    name, equals, text = assignment.partition("=")
    place = Location(f"--set {name}", 1, 1, assignment)
    steps: SpecPath = tuple(quoted or (int(index) if index else key) for quoted, index, key in re.findall(_STEP, name))
    if not equals or not re.fullmatch(_STEPS, name) or len(steps) > MAX_DEPTH:
        raise _refused((), "is not path=value, such as resource_config.instance_count=2", place)
    if steps[0] == EXTENDS:
        raise _refused(steps, "cannot be set, as the files are read before; write it in the spec", place)
    given = _given(text, steps, place)
    try:
        if given.value is None and steps[:-1] in _OF_USERS:
            tree.value = _merged(_with({}, steps, None), tree.value, (), set())
        else:
            tree.value = _with(tree.value, steps, given.value)
    except LookupError:
        raise _refused(steps, "cannot be set: only keys can be new, no list items", place) from None
    tree.problems += given.problems
    for old in [path for path in tree.places if path[: len(steps)] == steps]:
        del tree.places[old]
    for length in range(1, len(steps) + 1):
        tree.places.setdefault(steps[:length], place)


def _given(text: str, steps: SpecPath, place: Location) -> Tree:
    """The value of a `--set`: YAML's lists, mappings and quoted texts where it begins like one, else the text as it stands.

    So no `#`, `: ` or line break changes a text behind its writer's back. Raises SpecError.
    """
    if not text:
        raise _refused(steps, "has no value; write '' in quotes for an empty text, or null for none", place)
    if text[0] not in "[{\"'":
        checked_text(text, place.file)
        return Tree(place.file, None if text in NULLS else Plain(text))
    try:
        if " #" in text:
            read_tree(f"[{text}]", place.file)  # where the '#' begins a comment, the bracket never ends
        return read_tree(text, place.file)
    except SpecError as error:
        first = error.problems[0]
        quoted = f"; for a text, write {json.dumps(text, ensure_ascii=False)}" if len(text) <= 60 else ""
        raise _refused(steps, f"{first.message}{quoted}", place) from None


def _with(level: Any, steps: SpecPath, value: Any) -> Any:
    """`level` with `value` at the end of `steps`; mappings on the way are made. Raises LookupError."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = list(level) if isinstance(level, list) else []
        items[step] = _with(items[step], rest, value)
        return items
    if isinstance(level, list):
        raise LookupError(step)
    mapping = level if isinstance(level, dict) else {}
    return {**mapping, step: _with(mapping.get(step), rest, value)}


def _resolved(value: Any, path: SpecPath, tree: Tree, environ: Mapping[str, str]) -> Any:
    """The value with every `${NAME}` and `${NAME:-default}` replaced; `$${` stands for `${`.

    A variable that stands for settings as a whole is left as it is written: it can hold no mapping, but a secret.
    """
    if path in _WHOLE and not isinstance(value, dict):
        return value
    if isinstance(value, dict):
        return {key: _resolved(item, (*path, key), tree, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, (*path, index), tree, environ) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    told: dict[str, Problem] = {}

    def refuse(message: str, code: str) -> str:
        told.setdefault(message, Problem(path, message, code, location=tree.locate(path)))
        return "unset"

    def variable(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        if found[2] is None:
            raise LookupError(found[0])
        # As in a shell, `:-` takes the default for an empty variable too.
        known = environ.get(found[2]) or found[4] if found[3] else environ.get(found[2])
        if known is None:
            message = f"names the variable {found[2]}, which is not set; export it, or write ${{{found[2]}:-default}}"
            return refuse(message, "variable-not-set")
        if not known.isascii() and any("\ud800" <= character <= "\udfff" for character in known):
            return refuse(f"names the variable {found[2]}, which holds no UTF-8; export it as UTF-8", "invalid-value")
        return known

    # Quotes are needed around ${NAME} inside braces, so they say nothing of the type.
    resolved = value
    try:
        resolved = Plain(_VARIABLE.sub(variable, value))
    except LookupError:
        refuse(
            "has a ${ that begins neither ${NAME} nor ${NAME:-text}; write $${ for the characters ${", "invalid-value"
        )
    tree.problems += told.values()
    return resolved


def _masked(value: Any) -> MaskedSettings:
    """The settings that name variables, as they are written."""
    masked: MaskedSettings = {}
    for place, member in _SETTINGS.items():
        level = value
        for key in place:
            level = level.get(key) if isinstance(level, dict) else None
        for name, setting in level.items() if isinstance(level, dict) else ():
            if any(found[2] for text in _texts(setting) for found in _VARIABLE.finditer(text)):
                masked[member, name] = as_text(setting)
    return masked


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _refused(path: SpecPath, message: str, place: Location | None) -> SpecError:
    return SpecError([Problem(path, message, "spec-layer", location=place)])
