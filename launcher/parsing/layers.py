"""The layers of a spec: the files that it extends, the file itself, `--set`, and the values of `${VARIABLES}`.

Later layers win: mappings are merged key by key, any other value is replaced. A channel with another `source` keeps the keys that
the new kind has. Each value keeps its location, so that a
problem is reported in the right file, or at the right `--set`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from launcher.errors import Location, Problem, SpecError, SpecPath, did_you_mean_path
from launcher.parsing.spec_text import MAX_BYTES, are_of_a_spec, checked_text, first_keys
from launcher.parsing.tree import MAX_DEPTH, NULLS, Tree, read_tree
from launcher.spec.channels import KINDS, source_of
from launcher.spec.values import Plain, as_text
from launcher.spec.variables import Variables

_EXTENDS = "extends"
_MAX_NAME = 1000  # characters
_MAX_FILES = 50  # of one spec; a file counts as often as it is extended
_VARIABLE = re.compile(r"\$(\$(?=\{)|\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-((?:[^}$]|\$(?!\{))*))?\})?)")
_NAME = r"(?:\"[^\"]+\"|[^.\[\]\"=]+)"
_STEPS = rf"{_NAME}(?:\.{_NAME}|\[[0-9]{{1,6}}\])*"
_STEP = r"\"([^\"]+)\"|\[([0-9]+)\]|([^.\[\]\"=]+)"
# Mappings of settings: each is one text, as which it is shown.
_SETTINGS: tuple[SpecPath, ...] = (
    *(("environment",), ("hyperparameters",)),
    *(("request", "Environment"), ("request", "HyperParameters")),
)
_WHOLE = {("request",), *_SETTINGS}
# Mappings whose keys the user chooses: null in an upper layer deletes a key of the lower one.
_OF_USERS: tuple[SpecPath, ...] = (("channels",), ("hyperparameters",), ("environment",), ("tags",), ("bucket_owners",))


def read_layers(
    text: str | bytes, file: str, sets: Sequence[str], environ: Mapping[str, str]
) -> tuple[Tree, Variables]:
    """Return the merged tree of a spec, and its texts that name variables. Raises SpecError."""
    tree = _merge_bases(_read(text, file), (), environ, iter(range(_MAX_FILES)))
    for assignment in sets if isinstance(tree.value, dict) else ():
        _assign(tree, assignment)
    _expand_bare_uris(tree)
    variables = Variables(dict(_texts_with_variables(tree.value, ())))
    for place, written in variables.written.items():
        used = {environ.get(found[2]) or found[4]: found[0] for found in _VARIABLE.finditer(written) if found[2]}
        variables.values[place] = {value: shown for value, shown in used.items() if value}
    tree.value = _resolved(tree.value, (), tree, environ)
    return tree, variables


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, at most one more than a spec may have, since a device may never end. Raises OSError."""
    if Path(os.path.realpath(path)).is_fifo():
        raise OSError(None, "it is a named pipe; pipe the spec into `launch -` instead")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _read(text: str | bytes, file: str) -> Tree:
    tree = read_tree(text, file)
    if tree.value is None:
        raise tree.empty()
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
        name = _resolved(written, (_EXTENDS,), scratch, environ)
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
            message = (
                f"{shown} does not look like a spec, so its lines are not shown; check the path, and the file's keys"
            )
            raise refused(message) from None
        except OSError as error:
            near = did_you_mean_path(path) if isinstance(error, FileNotFoundError) else ""
            message = f"{shown} cannot be read: {error.strerror}; write a path relative to this file{near}"
            raise refused(message) from None
        lower = _merge_trees(_merge_bases(base, above, environ, files), lower)
    return _merge_trees(tree, lower)


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _merge_trees(upper: Tree, lower: Tree) -> Tree:
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
    """Return whether a path is one of these places, or below one of them."""
    return any(path[:length] in places for length in range(len(path) + 1))


def _assign(tree: Tree, assignment: str) -> None:
    """Apply one `--set path=value`."""
    name, equals, text = assignment.partition("=")
    place = Location(f"--set {name}", 1, 1, assignment)
    steps: SpecPath = tuple(quoted or (int(index) if index else key) for quoted, index, key in re.findall(_STEP, name))
    if not equals or not re.fullmatch(_STEPS, name) or len(steps) > MAX_DEPTH:
        raise _refused((), place, "is not path=value, such as resource_config.instance_count=2")
    if steps[0] == _EXTENDS:
        raise _refused(steps, place, "cannot be set, since the files are read before; write it in the spec")
    given = _parse_set_value(text, steps, place)
    try:
        if given.value is None and steps[:-1] in _OF_USERS:
            tree.value = _merged(_with({}, steps, None), tree.value, (), set())
        elif steps[-1] == "source":
            tree.value = _merged(_with({}, steps, given.value), tree.value, (), set())
        else:
            tree.value = _with(tree.value, steps, given.value)
    except LookupError:
        message = "cannot be set: --set adds keys, but not items of a list; set the whole list"
        raise _refused(steps, place, message) from None
    tree.problems += given.problems
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


def _with(level: Any, steps: SpecPath, value: Any) -> Any:
    """Return a copy of `level` with `value` at `steps`; missing mappings are added. Raises LookupError for list items."""
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
    """Return the value with every `${NAME}` and `${NAME:-default}` replaced, and `$${` as `${`.

    A variable in place of a whole mapping of settings stays unresolved: its value cannot be one, and may be a secret.
    """
    if path in _WHOLE and not isinstance(value, dict):
        return value
    if isinstance(value, dict):
        return {key: _resolved(item, (*path, key), tree, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, (*path, index), tree, environ) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    wrong: dict[str, str] = {}  # message -> code
    if any(found[2] is None and found[1] != "$" for found in _VARIABLE.finditer(value)):
        message = "has a ${ that begins neither ${NAME} nor ${NAME:-text}; write $${ for the characters ${"
        tree.problems.append(Problem(path, message, "invalid-value", location=tree.locate(path)))
        return value

    def variable(found: re.Match[str]) -> str:
        name = found[2]
        if name is None:
            return "$"
        # As in a shell, `:-` takes the default for an empty variable too.
        known = environ.get(name) or found[4] if found[3] else environ.get(name)
        if known is None:
            message = f"names the variable {name}, which is not set; export it, or write ${{{name}:-default}}"
            wrong[message] = "variable-not-set"
        elif not known.isascii() and any("\ud800" <= character <= "\udfff" for character in known):
            wrong[f"names the variable {name}, which is not UTF-8; export it as UTF-8"] = "invalid-value"
        return known or ""

    # YAML needs quotes around ${NAME} inside braces, so they do not make the value a text.
    resolved = Plain(_VARIABLE.sub(variable, value))
    tree.problems += [Problem(path, message, code, location=tree.locate(path)) for message, code in wrong.items()]
    return value if wrong else resolved


def _texts_with_variables(value: Any, path: SpecPath) -> Iterator[tuple[SpecPath, str]]:
    """Yield the place of each text that names a variable, and the text as written."""
    is_whole = path in _WHOLE and not isinstance(value, dict)
    if path[:-1] in _SETTINGS and isinstance(value, dict | list):
        value = as_text(value)
    if isinstance(value, dict) or (isinstance(value, list) and not is_whole):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts_with_variables(item, (*path, key))
    elif isinstance(value, str) and not is_whole and any(found[2] for found in _VARIABLE.finditer(value)):
        yield path, str(value)


def _refused(path: SpecPath, place: Location, message: str) -> SpecError:
    return SpecError([Problem(path, message, "spec-layer", location=place)])
