"""A rule: a function from a draft of the request to its findings, with an example that breaks it and one that does not.

Rules read the request, so that `request:` counts as well, and name keys of the spec; the request's origin finds where these are
written. Any member can be missing or empty, but none has a wrong type or is unknown to the model, since those are removed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from launcher.errors import SpecPath
from launcher.request.view import Draft

Mistake = tuple[SpecPath, str]  # the key; what is wrong, why, and what to do
Find = Callable[[Draft], Iterator[Mistake]]
Severity = Literal["error", "warning"]


class Rule(NamedTuple):
    """A function decorated with `error` or `warning`; its docstring says why the rule exists and what its source is."""

    code: str
    severity: Severity
    find: Find
    wrong: str  # YAML laid over `examples.BASE` that breaks this rule and no other
    right: str  # YAML laid over it that keeps this rule


def _rule(
    severity: Severity, code: str, shared: str = "%s", *, wrong: str = "", right: str = ""
) -> Callable[[Find], Rule]:
    """Return a decorator that makes a rule of a function.

    Args:
        severity: Whether a finding stops the job.
        code: The name by which `ignore:` and `--explain` know the rule.
        shared: What both examples have in common, with `%s` wherever they differ.
        wrong: What replaces it in the example that breaks the rule, and only this one.
        right: What replaces it in the example that keeps the rule.
    """
    return lambda find: Rule(code, severity, find, shared.replace("%s", wrong), shared.replace("%s", right))


def repeated(names: Iterable[tuple[SpecPath, str]]) -> Iterator[tuple[SpecPath, str]]:
    """Yield each place and name whose name is equal to an earlier one."""
    seen: set[str] = set()
    for path, name in names:
        if name in seen:
            yield path, name
        seen.add(name)


error, warning = partial(_rule, "error"), partial(_rule, "warning")
