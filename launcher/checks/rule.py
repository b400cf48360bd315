"""A rule: a function from a draft of the request to its findings, with an example that breaks it and one that does not.

Rules read the request, so that `request:` counts as well, and name keys of the spec; the request's origin finds where these are
written. Any member can be missing or empty, but none has a wrong type or is unknown to the model, since
those are removed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from launcher.errors import SpecPath
from launcher.request.view import Draft

Mistake = tuple[SpecPath, str]  # the key; what is wrong, why, and what to do


class Rule(NamedTuple):
    """One row of the table of rules; the function's docstring says why the rule exists and what its source is."""

    code: str
    severity: Literal["error", "warning"]
    find: Callable[[Draft], Iterator[Mistake]]
    wrong: str  # YAML laid over `examples.BASE` that breaks this rule and no other
    right: str  # YAML laid over it that keeps this rule
