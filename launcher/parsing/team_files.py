"""The files below every spec: the SageMaker SDK's configuration, the machine's team file, and the team's own. Later ones win.

A team's file has `defaults` and `locked` values, both with a spec's keys, `required` keys, and the allowed `accounts` and
`regions`. Only a file that is found above a spec can be another user's: it could name their role, network and bucket, so it is
refused, as git refuses another user's repository (safe.directory). One that LAUNCH_TEAM names is the user's choice.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from launcher.errors import InputError, Location, Problem, SpecError, SpecPath, did_you_mean, unreadable
from launcher.parsing.environment import resolved
from launcher.parsing.layers import merge_trees, read_bytes, steps_of, with_value
from launcher.parsing.tree import Tree, read_tree
from launcher.parsing.validation import problem_of, validated
from launcher.spec.model import Section, spec_name, value_at
from launcher.spec.structures import members
from launcher.spec.team import Allowed, Demand, Team
from launcher.spec.values import WRONG_TYPE, AccountId, Text

MACHINE_FILE = Path("/etc/sagemaker-launch/team.yaml")
FILE_NAME = ".launch.yaml"
VARIABLE = "LAUNCH_TEAM"
# These describe one job. Below `launch rerun`, `measure` and `reshard`, which have their own, they would break it.
_OF_ONE_JOB = (
    "extends code channels hyperparameters training_job_name base_name container_entrypoint container_arguments"
)


class _TeamFile(Section):
    defaults: dict[Text, Any] | None = None
    locked: dict[Text, Any] | None = None
    required: dict[Text, Text | None] | None = None
    accounts: tuple[AccountId, ...] | None = None
    regions: tuple[Text, ...] | None = None


def read_team(file: str, environ: Mapping[str, str]) -> tuple[Tree, Team]:
    """Return the merged values below a spec, and what the team's files demand of it.

    Args:
        file: The spec's file, above which the team's file is searched; other names, such as `<spec>`, have no folder.
        environ: The variables that name files and folders.

    Raises:
        SpecError: A file is wrong.
        InputError: A file that must be there cannot be read, or a file found above the spec is another user's.
    """
    tree, team = Tree(file, {}), Team()
    for variable, default in _of_sdk(environ):
        name = environ.get(variable, default)
        if name.startswith("s3://"):
            team = _with(team, unread=(Location(variable, 0, 0),))
        elif name:
            path = Path(name, "config.yaml") if Path(name).is_dir() else Path(name)
            if (found := _read(path, is_named=variable in environ, source=variable)) is not None:
                tree = merge_trees(_keyed(found), tree)
                team = _with(team, files=(found.file,))
    for path, is_named in _of_team(file, environ):
        if (found := _read(path, is_named=is_named, source=VARIABLE)) is not None:
            values, more = _parsed(found, environ)
            tree, team = merge_trees(values, tree), _with(team, files=(found.file,), **more)
    return tree, team


def values_below(file: str, environ: Mapping[str, str]) -> tuple[dict[str, Any], Team]:
    """Return the values below a spec, with those of variables, and what the team's files demand. Raises as `read_team`."""
    tree, team = read_team(file, environ)
    values: dict[str, Any] = resolved(tree.value, (), tree, environ)
    if tree.problems:
        raise SpecError(tree.problems)
    return values, team


def _with(team: Team, **more: tuple[Any, ...]) -> Team:
    return Team(**{name: (*rows, *more.get(name, ())) for name, rows in vars(team).items()})


def _of_sdk(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that override the SDK's configuration files, each with the file's usual place (platformdirs)."""
    home = environ.get("HOME", "")
    site, user = "/etc/xdg", f"{home}/.config" if home else ""
    if sys.platform == "darwin":
        site, user = "/Library/Application Support", f"{home}/Library/Application Support" if home else ""
    site, user = (environ.get("XDG_CONFIG_DIRS") or site).split(":")[0], environ.get("XDG_CONFIG_HOME") or user
    return (
        ("SAGEMAKER_ADMIN_CONFIG_OVERRIDE", f"{site}/sagemaker/config.yaml"),
        ("SAGEMAKER_USER_CONFIG_OVERRIDE", f"{user}/sagemaker/config.yaml" if user else ""),
    )


def _of_team(file: str, environ: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """Yield the team's files, the lowest first, and whether each must exist."""
    yield MACHINE_FILE, False
    if VARIABLE in environ:
        if environ[VARIABLE]:
            yield Path(environ[VARIABLE]), True
        return
    from launcher import bundled

    own = () if file.startswith("<") or bundled.is_template(file) else (Path(file).absolute(),)
    for path in (*own, Path.cwd() / "job.yaml"):
        for folder in path.parents:
            if os.path.lexists(folder / FILE_NAME):
                _check_owner(folder / FILE_NAME)
                yield folder / FILE_NAME, True
                return


def _check_owner(path: Path) -> None:
    if sys.platform == "win32":
        return  # Python knows no owners there.
    try:
        owners = {path.lstat().st_uid, path.stat().st_uid} - {0, os.geteuid()}
    except OSError as error:
        raise unreadable(path, error) from None
    if owners:
        remedy = f"to use it, set {VARIABLE}={path}; to use none, set {VARIABLE} to an empty text"
        raise InputError(
            f"{path}: belongs to another user (uid {min(owners)}), who could change your jobs by it; {remedy}"
        )


def _read(path: Path, *, is_named: bool, source: str) -> Tree | None:
    """Return a file's tree; None if it does not exist and need not, or is empty."""
    try:
        tree = read_tree(read_bytes(path), str(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        if is_named:
            raise unreadable(path, error, f", which {source} names" if source else "") from None
        return None
    except OSError as error:
        raise unreadable(path, error) from None
    except SpecError as error:
        if error.problems[0].code == "yaml-empty":
            return None
        raise SpecError(_without_lines(error.problems)) from None
    if not isinstance(tree.value, dict | None):
        tree.problems.append(
            Problem((), "is not a mapping of `key: value` lines", WRONG_TYPE, location=tree.locate(()))
        )
    if tree.problems:
        raise SpecError(_without_lines(tree.problems))
    return tree if tree.value else None


def _without_lines(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems that quote no line: the file may be another one than was meant, such as one of keys."""
    return [each._replace(location=each.location and replace(each.location, text="")) for each in problems]


def _below(tree: Tree, key: str) -> Tree:
    """Return a mapping of the file as a tree of its own."""
    places = {path[1:]: at for path, at in tree.places.items() if path[:1] == (key,) and len(path) > 1}
    texts = {path[1:]: at for path, at in tree.below.items() if path[:1] == (key,)}
    return Tree(tree.file, tree.value.get(key) or {}, places, lines=tree.lines, below=texts)


def _parsed(tree: Tree, environ: Mapping[str, str]) -> tuple[Tree, dict[str, tuple[Any, ...]]]:
    """Return the values of a team's file, locked ones over defaults, and its demands by their fields of Team."""
    try:
        file = _TeamFile.model_validate(tree.value)
    except ValidationError as error:
        wrong_keys = [_wrong(each["loc"], each["type"], each["msg"], tree) for each in error.errors()]
        is_team = tree.value.keys() & _TeamFile.model_fields.keys()
        raise SpecError(wrong_keys if is_team else _without_lines(wrong_keys)) from None
    problems = [
        Problem((part, key), "describes one job; write it in a spec that others extend", "team-file", location=at)
        for part in ("defaults", "locked")
        for key, at in ((path[0], at) for path, at in _below(tree, part).places.items() if len(path) == 1)
        if key in _OF_ONE_JOB.split()
    ]
    locked = _below(tree, "locked")
    spec, wrong = validated(resolved(locked.value, (), locked, environ))
    problems += [*locked.problems, *(_located(problem_of(*each[1:]), locked) for each in wrong)]
    required = []
    for name, pattern in (file.required or {}).items():
        at = tree.locate(("required", name))
        try:
            re.compile(pattern or "")
        except re.error as error:
            text = f"{pattern!r} is not a regular expression: {error}"
            problems.append(Problem(("required", name), text, "team-file", location=at))
        path = steps_of(name)
        if path and all(isinstance(part, str) for part in path):
            wrong = validated(with_value({}, path, None))[1]
            unknown = [each for each in wrong if each[1]["type"] == "extra_forbidden"]
            problems += [problem_of(*each[1:])._replace(location=at) for each in unknown]
        else:
            text = "is not the path of a key, such as vpc_config, tags.team or output_data_config.kms_key_id"
            problems.append(Problem(("required", name), text, "team-file", location=at))
        required.append(Demand(path, pattern, at))
    if problems:
        raise SpecError(problems)
    demands: dict[str, tuple[Any, ...]] = {
        "locked": tuple(Demand(path, value_at(spec, path), locked.locate(path)) for path in _leaves(locked.value)),
        "required": tuple(required),
        "accounts": (Allowed(file.accounts, tree.locate(("accounts",))),) if file.accounts is not None else (),
        "regions": (Allowed(file.regions, tree.locate(("regions",))),) if file.regions is not None else (),
    }
    return merge_trees(_below(tree, "locked"), _below(tree, "defaults")), demands


def _located(problem: Problem, tree: Tree) -> Problem:
    return problem._replace(location=tree.locate(problem.path))


def _wrong(path: SpecPath, kind: str, message: str, tree: Tree) -> Problem:
    if kind == "extra_forbidden":
        keys = list(_TeamFile.model_fields)
        hint = did_you_mean(str(path[-1]), keys) or f"; its keys are {', '.join(keys)}"
        message = f"is not a key of a team's file{hint}"
    elif kind in ("dict_type", "tuple_type"):
        message = f"must be a {'mapping of `key: value` lines' if kind == 'dict_type' else 'list'}"
    return _located(Problem(path, message, "team-file"), tree)


def _leaves(value: Any, path: SpecPath = ()) -> Iterator[SpecPath]:
    """Yield the places of values that are no mappings."""
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path


def _keyed(tree: Tree) -> Tree:
    """Return the values of SageMaker.TrainingJob in the SDK's configuration as those of a spec."""
    value, path = tree.value, tuple[str, ...]()
    for part in ("SageMaker", "TrainingJob"):
        value, path = value.get(part) or {}, (*path, part)
        if not isinstance(value, dict):
            raise SpecError([Problem((), "is not a mapping of members", WRONG_TYPE, location=tree.locate(path))])
    made = Tree(tree.file, lines=tree.lines)
    made.value = _member_keys(value, path, (), tree, made)
    return made


def _member_keys(value: Any, at: SpecPath, to: SpecPath, tree: Tree, made: Tree) -> Any:
    """Return the value at a place of the configuration with a spec's keys, and note where each is written."""
    if to:
        made.places[to] = tree.locate(at)
    if to == ("tags",) and isinstance(value, list) and all(isinstance(each, dict) and "Key" in each for each in value):
        for index, each in enumerate(value):
            place: SpecPath = (*to, str(each["Key"]))
            made.places[place] = tree.locate((*at, index))
        return {str(each["Key"]): each.get("Value") for each in value}
    if isinstance(value, list):
        return [_member_keys(item, (*at, index), (*to, index), tree, made) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    top = {place[-1]: key for key, place in members().items() if len(place) == 1} if not to else {}
    names = {name: name if to == ("environment",) else top.get(name, spec_name(name)) for name in value}
    return {new: _member_keys(value[name], (*at, name), (*to, new), tree, made) for name, new in names.items()}
