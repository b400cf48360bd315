"""The codes of problems that are found offline: what each means, and which of them can be ignored."""

from __future__ import annotations

from launcher.errors import Location, Problem
from launcher.rules import RULES
from launcher.rules.rule import Severity
from launcher.spec.job import JobSpec
from launcher.tables import read_table

# Errors that can be ignored even so: the service may be newer than the installed model.
_IGNORABLE_ERRORS = ("aws-enum",)


def offline_codes() -> dict[str, tuple[Severity, str]]:
    """Return each code of a rule, and those without a rule, of codes.yaml: the severity, and why it is a problem."""
    table = read_table(__file__, "codes")
    of_rules = {rule.code: (rule.severity, rule.find.__doc__ or "") for rule in RULES}
    return of_rules | {code: (each.get("severity", "error"), each["why"]) for code, each in table.items()}


def ignorable_offline() -> tuple[str, ...]:
    """Return those of the offline codes that `ignore:` and `--ignore` suppress."""
    return (*(code for code, (severity, _) in offline_codes().items() if severity == "warning"), *_IGNORABLE_ERRORS)


def without_ignored(problems: list[Problem], spec: JobSpec, ignore: tuple[str, ...]) -> list[Problem]:
    """Return the problems without those to ignore, and one problem for each error that cannot be ignored.

    Codes that are not in this table are left to `launcher.reference.problem_codes.unknown_codes`.
    """
    silent = {*(spec.ignore or ()), *ignore}
    if not silent:
        return problems
    allowed = ignorable_offline()
    refused = [
        not_ignored(code, "is an error, and errors cannot be ignored", spec)
        for code in sorted(silent.intersection(offline_codes()).difference(allowed))
    ]
    return [problem for problem in problems if problem.code not in silent or problem.code not in allowed] + refused


def not_ignored(code: str, why: str, spec: JobSpec) -> Problem:
    in_spec = code in (spec.ignore or ())
    location = spec.locate(("ignore",)) if in_spec else Location("--ignore", 1, 1, code)
    return Problem(("ignore",) if in_spec else (), f"{code!r} {why}", "ignore-code", location=location)
