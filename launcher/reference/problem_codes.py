"""All codes of problems, those of the account checks included, and the text of `launch --explain`.

The account checks are imported only for a code that is not in the other tables, so that a dry run loads nothing that speaks to AWS.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from launcher.errors import Problem, did_you_mean
from launcher.rules.codes import ignorable_offline, not_ignored, offline_codes
from launcher.rules.examples import details, examples, laid_over_base
from launcher.spec.job import JobSpec


def account_codes() -> Mapping[str, tuple[str, str]]:
    """Return the codes of the account checks: code -> (severity, why)."""
    from launcher.account import CHECKS

    return {code: said for check in CHECKS for code, said in check.codes.items()}


def all_codes() -> tuple[str, ...]:
    """Return every code that `--explain` knows."""
    from launcher.jobs.causes import SCRIPT_FAILED, rows

    return (*offline_codes(), *account_codes(), *dict.fromkeys(row.code for row in rows()), SCRIPT_FAILED)


def ignorable() -> tuple[str, ...]:
    """Return the codes that `ignore:` and `--ignore` accept; with all of the account checks, which may run too early."""
    return (*ignorable_offline(), *account_codes())


def unknown_codes(spec: JobSpec, ignore: tuple[str, ...]) -> list[Problem]:
    silent = {*(spec.ignore or ()), *ignore}
    others = silent.difference(offline_codes()) if silent else ()
    unknown = sorted({*others}.difference(account_codes())) if others else ()
    other = "; write the code in brackets at the end of the warning"
    return [not_ignored(code, f"is not a code{did_you_mean(code, ignorable()) or other}", spec) for code in unknown]


def explanation(code: str) -> str | None:
    """Return the full explanation of a code, for a terminal; None for an unknown code."""
    if code in (known := offline_codes()):
        return _formatted(code, *known[code])
    if code in (asked := account_codes()):
        from launcher.account import CHECKS

        severity, why = asked[code]
        check = next(check for check in CHECKS if code in check.codes)
        return (
            f"{code} ({severity}, found by asking AWS)\n\n{why}\n\nFound by the check {check.name!r}: {check.question}"
            " `launch SPEC --check` repeats it and changes nothing.\n"
            f"`--ignore {code}` suppresses it, for anything that will be right by the time the job runs.\n"
        )
    from launcher.jobs.causes import explained

    return explained(code)


def _formatted(code: str, severity: str, why: str) -> str:
    text = "\n\n".join(filter(None, (why, details(code))))
    known = dict(zip(("wrong", "right"), examples().get(code, ()), strict=False))
    shown = [f"{which}:\n\n{textwrap.indent(distinct_lines(each), '    ')}\n" for which, each in known.items()]
    return "\n".join([f"{code} ({severity})\n\n{text}\n", *shown])


def distinct_lines(example: str) -> str:
    """Return an example without the lines that every example has."""
    common = set(laid_over_base("").splitlines())
    return "\n".join(line for line in laid_over_base(example).splitlines() if line not in common) or example
