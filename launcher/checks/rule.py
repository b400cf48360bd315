"""What a rule is: a small function from a draft of the request to what breaks the rule, and the example that proves it.

Rules look at the request, so that what `request:` says counts as well, and name places of the spec (`places` finds those
in `request:`). Any member can be absent or empty when they run, but none has the wrong type, and none is one that the model
does not know: what is wrong in this way is taken out before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from launcher.errors import SpecPath
from launcher.request.view import Draft

Found = tuple[SpecPath, str]  # the place in the spec; what is wrong, why, and what to do


class Rule(NamedTuple):
    """One row of the table of rules; the function's docstring says why the rule is there and where it is written."""

    code: str
    severity: Literal["error", "warning"]
    find: Callable[[Draft], Iterator[Found]]
    wrong: str  # YAML laid over `examples.BASE` that breaks this rule and no other
    right: str  # YAML laid over it that keeps this rule
