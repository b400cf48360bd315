"""A rule: a function from a draft of the request to its findings.

Rules read the request, so that `request:` counts as well, and yield paths in it; the request's origin finds where these are
written. Any member can be missing or empty, but none has a wrong type or is unknown to the model, since those are removed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from launcher.errors import SpecPath
from launcher.request.view import Draft

Mistake = tuple[SpecPath, str]  # the member, or a key of ours that has none; what is wrong, why, and what to do
Find = Callable[[Draft], Iterator[Mistake]]
Severity = Literal["error", "warning"]


class Rule(NamedTuple):
    """A function decorated with `error` or `warning`; its docstring says why the rule exists."""

    code: str  # by which `ignore:`, `--explain` and the examples know it
    severity: Severity
    find: Find


def _rule(severity: Severity, code: str) -> Callable[[Find], Rule]:
    return lambda find: Rule(code, severity, find)


def repeated(names: Iterable[tuple[SpecPath, str]]) -> Iterator[tuple[SpecPath, str]]:
    """Yield each place and name whose name is equal to an earlier one."""
    seen: set[str] = set()
    for path, name in names:
        if name in seen:
            yield path, name
        seen.add(name)


error, warning = partial(_rule, "error"), partial(_rule, "warning")
