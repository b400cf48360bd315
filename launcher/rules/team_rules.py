"""What a team's files demand of every spec (`launcher.spec.team`), compared with the spec that its layers make.

Each key has one place to be written, so `request:`, which replaces what keys say, may not set those that a team names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from launcher.errors import Location, Problem, SpecPath
from launcher.request.origin import Origin
from launcher.spec.job import JobSpec
from launcher.spec.model import value_at
from launcher.spec.team import MAX_COST, Allowed

REQUIRED = "team-required"  # the code of a key that a team requires


def team_problems(spec: JobSpec, origin: Origin) -> Iterator[Problem]:
    team = spec.team
    for path, given, at in team.locked:
        value, is_most = value_at(spec, path), path == MAX_COST and given is not None
        if (over := _replaced(origin, path)) is not None:
            yield _of_request(spec, over, at, "team-locked")
        elif (value is None or value > given) if is_most else value != given:
            what = f"may be at most {given}" if is_most else "is locked"
            yield _problem(spec, path, f"{what} by the team's file ({_line(at)}); delete it here", "team-locked")
    for path, pattern, at in team.required:
        if (over := _replaced(origin, path)) is not None:
            yield _of_request(spec, over, at, REQUIRED)
            continue
        value = value_at(spec, path)
        if value is None or value in ("", (), {}):
            wanted = f" to match '{pattern}'" if pattern is not None else ""
            yield _problem(spec, path, f"is required by the team's file ({_line(at)}){wanted}; write it", REQUIRED)
        elif pattern is not None and not all(
            re.fullmatch(pattern, _text(each)) for each in (value if isinstance(value, tuple) else (value,))
        ):
            wrong = f"does not match '{pattern}', which the team's file requires ({_line(at)}); correct it"
            yield _problem(spec, path, wrong, REQUIRED)
    for path in (("role_arn",), ("request", "RoleArn")):
        role = re.match(r"arn:[^:]*:iam::([0-9]{12}):", str(value_at(spec, path)))
        yield from _not_allowed(spec, path, role and role[1], "account", team.accounts)
    yield from _not_allowed(spec, ("region",), spec.region, "region", team.regions)
    for variable in team.unread:
        message = "names a file in S3, which is not read; download it, and let the variable name the copy"
        yield Problem((), message, "sdk-config-unread", "warning", variable)


def not_allowed(name: str, allowed: Allowed) -> str:
    """Return why a job may not run in a region, or in `account 123456789012`."""
    return f"{name} is not one of those that the team's file allows ({_line(allowed.at)}): {', '.join(allowed.names)}"


def _not_allowed(
    spec: JobSpec, path: SpecPath, name: str | None, what: str, rows: tuple[Allowed, ...]
) -> Iterator[Problem]:
    for row in rows:
        if name is not None and name not in row.names:
            shown = name if path == (what,) else f"{what} {name}"
            yield _problem(spec, path, not_allowed(shown, row), f"team-{what}")


def _replaced(origin: Origin, path: SpecPath) -> SpecPath | None:
    """Return the place below `request:` that sets or deletes a key, something in it or around it; None if there is none."""
    by_member = {place[1:]: place for place in origin.written.values() if place[0] == "request"}
    for wanted, known in (*((member, by_member) for member in origin.set_by(path)), (path, origin.replaced)):
        for each, place in known.items():
            if wanted[: len(each)] == each[: len(wanted)]:
                return place
    return None


def _of_request(spec: JobSpec, place: SpecPath, at: Location, code: str) -> Problem:
    message = f"replaces a key of the team's file ({_line(at)}); delete it here"
    return Problem(place, message, code, location=spec.locate(place))


def _problem(spec: JobSpec, path: SpecPath, message: str, code: str) -> Problem:
    """Return a problem at the innermost key around it that is not a default of the team."""
    location = spec.locate(path)
    if location is not None and location.file in spec.team.files:
        # What a team's own file demands of another one is wrong there; what is missing is so in the spec.
        location = location if value_at(spec, path) is not None else spec.locate(())
    return Problem(path, message, code, location=location)


def _line(at: Location) -> str:
    return f"{at.file}:{at.line}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
