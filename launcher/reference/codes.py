"""The codes of problems: what each means, and which of them can be ignored.

Preflight's codes are imported only for a code that is not one of the others, so that a dry run does not load preflight.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checks import RULES
from launcher.checks.examples import laid_over_base
from launcher.errors import Problem
from launcher.nearest import did_you_mean
from launcher.spec.job import JobSpec

# Codes without a rule: of the YAML, of a spec's shape, of botocore's model, and of files.
OTHER_CODES = {
    "yaml-syntax": "The file is not YAML at this place.",
    "yaml-empty": "The file is empty.",
    "yaml-too-large": "The file is larger than 1 MB, or has more than 5,000 values.",
    "yaml-encoding": "The file is not UTF-8.",
    "yaml-character": "The file has a character that YAML does not allow, such as NUL, or an invisible or misleading one.",
    "yaml-documents": "The file has several documents; one file is one job.",
    "yaml-tag": "A tag such as `!!python/...` is not supported.",
    "yaml-alias": "An alias names no anchor, or the value around it, or expands to too many values.",
    "yaml-depth": "The nesting is deeper than 50 levels.",
    "yaml-key": "A key is a list, a mapping or null.",
    "duplicate-key": "A key is written twice in one mapping.",
    "unknown-key": "A key is misspelt, or belongs elsewhere.",
    "unknown-source": "A channel's `source` is not a storage kind.",
    "unknown-value": "A value is not one of those that a key of the launcher's own allows.",
    "wrong-type": "A value has the wrong type: text for a number, a list for a mapping.",
    "invalid-value": "A value is refused for another reason, given in the message.",
    "aws-required": "AWS requires this member.",
    "aws-type": "AWS's member has another type.",
    "aws-enum": "The value is not one of those that the installed botocore knows.",
    "aws-pattern": "The text does not match AWS's pattern.",
    "aws-min": "The value is shorter, fewer or smaller than AWS allows.",
    "aws-max": "The value is longer, more or larger than AWS allows.",
    "aws-unknown-member": "The request has no such member.",
    "image-unknown": "No image of AWS's is known for the framework and versions of `image`.",
    "variable-not-set": "A `${NAME}` names an environment variable that is not set.",
    "spec-layer": "A file to extend, or a `--set`, cannot be merged with the spec.",
    "ignore-code": "`ignore` has an unknown code, or an error that cannot be ignored.",
    "code-unreadable": "The code folder is missing, or has a file that cannot be read.",
    "code-file-missing": "The code folder lacks a file that the spec names.",
    "code-package-toolkit": "The toolkit starts this code, and cannot run its entry point with a setup.py in the folder.",
    "code-too-large": "More than 250 MB, or more than 20,000 files, would be sent with the code.",
    "aws-refused": "AWS refused the request; the message is AWS's own.",
}

# Warnings without a rule, since they are about files.
OTHER_WARNINGS = {
    "code-requirements-unnamed": "A requirements.txt is sent with the code, but `code.requirements` does not name it.",
    "code-skipped": "The code folder or a dependency has broken links, FIFOs or sockets, which cannot be sent.",
    "code-aws-keys": "An AWS secret access key seems to be in a file that is sent with the code.",
}

# Errors that can be ignored even so: the service may be newer than the installed model.
IGNORABLE_ERRORS = ("aws-enum",)


def ignorable() -> tuple[str, ...]:
    """Return the codes that `ignore:` and `--ignore` accept; with all of preflight's, which may run too early."""
    return (*_ignorable_offline(), *preflight_codes())


def preflight_codes() -> Mapping[str, tuple[str, str]]:
    """Return preflight's codes: code -> (severity, why)."""
    from launcher.preflight import CHECKS

    return {code: said for check in CHECKS for code, said in check.codes.items()}


def all_codes() -> tuple[str, ...]:
    """Return every code that `--explain` knows."""
    return (*(rule.code for rule in RULES), *OTHER_CODES, *OTHER_WARNINGS, *preflight_codes())


def _ignorable_offline() -> tuple[str, ...]:
    return (*(rule.code for rule in RULES if rule.severity == "warning"), *OTHER_WARNINGS, *IGNORABLE_ERRORS)


def without_ignored(problems: list[Problem], spec: JobSpec, ignore: tuple[str, ...]) -> list[Problem]:
    """Return the problems without those to ignore, and one problem for each code that cannot be ignored."""
    silent = {*(spec.ignore or ()), *ignore}
    offline = _ignorable_offline()
    refused = []
    for code in sorted(silent.difference(offline)):
        known = code in OTHER_CODES or any(rule.code == code for rule in RULES)
        if not known and code in preflight_codes():
            continue
        why = (
            "is an error, and errors cannot be ignored" if known else f"is not a code{did_you_mean(code, ignorable())}"
        )
        location = spec.locate(("ignore",)) if code in (spec.ignore or ()) else None
        refused.append(Problem(("ignore",), f"{code!r} {why}", "ignore-code", location=location))
    return [problem for problem in problems if problem.code not in silent or problem.code not in offline] + refused


def explanation(code: str) -> str | None:
    """Return the full explanation of a code, for a terminal; None for an unknown code."""
    from launcher.reference.stories import STORIES  # no other command needs them

    if code in STORIES:
        more = STORIES[code]
        return _told(code, "error", f"{OTHER_CODES[code]}\n\n{more.text}", more.wrong, more.right)
    for severity, table in (("error", OTHER_CODES), ("warning", OTHER_WARNINGS)):
        if code in table:
            return f"{code} ({severity})\n\n{table[code]}\n"
    for rule in RULES:
        if rule.code == code:
            story = "\n".join(line.strip() for line in (rule.find.__doc__ or "").strip().splitlines())
            return _told(code, rule.severity, story, rule.wrong, rule.right)
    if code in (asked := preflight_codes()):
        from launcher.preflight import CHECKS

        severity, why = asked[code]
        check = next(check.name for check in CHECKS if code in check.codes)
        found = f"The check {check!r} finds it by asking AWS: `launch SPEC --check` repeats it and changes nothing."
        silence = f"`--ignore {code}` suppresses it, for anything that will be right by the time the job runs."
        return f"{code} ({severity}, found by asking AWS)\n\n{why}\n\n{found}\n{silence}\n"
    return None


def _told(code: str, severity: str, story: str, wrong: str, right: str) -> str:
    wrong, right = (_indented(_of(example)) for example in (wrong, right))
    return f"{code} ({severity})\n\n{story}\n\nwrong:\n\n{wrong}\nright:\n\n{right}"


def _of(example: str) -> str:
    """Return an example without the lines that every example has."""
    common = set(laid_over_base("").splitlines())
    return "\n".join(line for line in laid_over_base(example).splitlines() if line not in common) or example


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
