"""From YAML text to a JobSpec, or to one error with every problem at its file, line and column.

If keys or types are wrong, the rest of the spec is still checked against AWS's rules, so that one run reports everything.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from launcher import errors
from launcher.errors import Problem, SpecError
from launcher.parsing.layers import Assignment, is_within, read_bytes, read_layers
from launcher.parsing.spec_text import MAX_BYTES, is_spec
from launcher.parsing.team_files import read_team
from launcher.parsing.tree import Tree
from launcher.parsing.validation import problem_of, validated
from launcher.rules import find_problems
from launcher.rules.codes import without_ignored
from launcher.spec.job import JobSpec
from launcher.spec.values import WRONG_TYPE, Plain

_WRONG_FORMS = {"model_type", "model_attributes_type", "dict_type", "tuple_type", "list_type"}


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
        raise errors.unreadable(path, error, fits=is_spec) from None
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
