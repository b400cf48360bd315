"""`max_cost`: the cost in US dollars above which a user has to agree to a job.

The first of these counts: the spec's `max_cost`, LAUNCH_MAX_COST, $100.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from launcher.cost.estimate import estimate, why_not
from launcher.cost.show import at_most, dollars
from launcher.errors import InputError, Problem, RefusedError, SpecError
from launcher.planning import Plan
from launcher.spec.job import JobSpec
from launcher.spec.team import MAX_COST

VARIABLE = "LAUNCH_MAX_COST"
_DEFAULT = Decimal(100)


class Limit(NamedTuple):
    """The highest cost of a job that needs no agreement; if the user has set it, only an answer on a terminal exceeds it."""

    usd: Decimal
    source: str | None
    """Where the user has set it; None for the default."""

    def __str__(self) -> str:
        return f"max_cost {dollars(self.usd)} ({self.source or 'the default'})"


def limit_of(spec: JobSpec) -> Limit:
    """Return the limit for a job. Raises InputError if the user's variable is no number."""
    if spec.max_cost is not None:
        return Limit(spec.max_cost, str(spec.locate(("max_cost",)) or "the spec"))
    if not (value := os.environ.get(VARIABLE)):
        return Limit(_DEFAULT, None)
    if not value.replace(".", "", 1).isdecimal():
        raise InputError(f"{VARIABLE}: is {value!r}, but a number of US dollars belongs here, such as 100 or 99.50")
    return Limit(Decimal(value), VARIABLE)


def attempts_of(spec: JobSpec) -> int:
    """Return how many training jobs a queue may create for the job, each as long as the request allows."""
    return (spec.queue and spec.queue.attempts) or 1


def objection(request: Mapping[str, Any], region: str | None, limit: Limit, runs: int = 1) -> str | None:
    """Return why the job needs the user's agreement; None if it stays below the limit or is paid for in advance.

    If only us-east-1's price is known, it is doubled: other regions cost up to 1.63 times as much (ap-south-1).
    """
    if request.get("ResourceConfig", {}).get("TrainingPlanArn"):
        return None
    found = estimate(request, region)
    if found is None:
        return f"what it can cost is unknown: {why_not(request)}"
    if (usd := found.usd["altogether"]) is None:
        return f"what it can cost is unknown: no price is known for {', '.join(found.unknown)}"
    elsewhere = "".join(f" at {other}'s prices, and up to twice that in {region}" for other in found.borrowed_from)
    most = usd * (2 if elsewhere else 1) * runs
    each = f" in each of {runs} runs" if runs > 1 else ""
    return f"it can cost {at_most(usd)}{elsewhere}{each}, more than {limit}" if most > limit.usd else None


def refuse_above_locked(plan: Plan, region: str | None, runs: int = 0) -> None:
    """Raise SpecError if a job may cost more than a `max_cost` that the team has locked, which nobody's agreement lifts."""
    for path, usd, at in plan.spec.team.locked:
        if path == MAX_COST and usd is not None:
            limit = Limit(usd, f"{at.file}:{at.line}")
            reason = objection(plan.request, region, limit, runs or attempts_of(plan.spec))
            if reason is not None:
                message = f"{reason}, which the team has locked; lower stopping_condition.max_runtime_in_seconds"
                raise SpecError([Problem(path, message, "team-locked", location=plan.spec.locate(path))])


def refuse_above_limit(plan: Plan, region: str | None, *, agree: str, agreed: bool, runs: int = 0) -> None:
    """Raise RefusedError if a job may cost more than its limit. The default limit lets a job pass that the caller has `agreed` to.

    `agree` is what the message names as the way to agree: an option, or an argument in Python.
    """
    refuse_above_locked(plan, region, runs)
    limit = limit_of(plan.spec)
    if agreed and limit.source is None:
        return
    if (reason := objection(plan.request, region, limit, runs or attempts_of(plan.spec))) is not None:
        name, lower = plan.request["TrainingJobName"], "lower stopping_condition.max_runtime_in_seconds"
        remedy = f"Set max_cost in the spec to what the job may cost, {lower}, or agree with {agree}"
        if limit.source is not None:
            remedy = f"Raise max_cost ({limit.source}), unset it and agree with {agree}, or {lower}"
        raise RefusedError(f"{name}: {reason}; nothing was created. {remedy}")
