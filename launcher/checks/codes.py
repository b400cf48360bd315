"""The codes of problems that are found offline: what each means, and which of them can be ignored."""

from __future__ import annotations

from launcher.checks import RULES
from launcher.errors import Location, Problem
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
    "aws-min": "The value is shorter or smaller than AWS allows, or has fewer items.",
    "aws-max": "The value is longer or larger than AWS allows, or has more items.",
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
_IGNORABLE_ERRORS = ("aws-enum",)


def offline_codes() -> tuple[str, ...]:
    """Return every code of this table and of the rules."""
    return (*(rule.code for rule in RULES), *OTHER_CODES, *OTHER_WARNINGS)


def ignorable_offline() -> tuple[str, ...]:
    """Return those of the offline codes that `ignore:` and `--ignore` suppress."""
    return (*(rule.code for rule in RULES if rule.severity == "warning"), *OTHER_WARNINGS, *_IGNORABLE_ERRORS)


def without_ignored(problems: list[Problem], spec: JobSpec, ignore: tuple[str, ...]) -> list[Problem]:
    """Return the problems without those to ignore, and one problem for each error that cannot be ignored.

    Codes that are not in this table are left to `launcher.reference.problem_codes.unknown_codes`.
    """
    silent, allowed = {*(spec.ignore or ()), *ignore}, ignorable_offline()
    refused = [
        not_ignored(code, "is an error, and errors cannot be ignored", spec)
        for code in sorted(silent.intersection(offline_codes()).difference(allowed))
    ]
    return [problem for problem in problems if problem.code not in silent or problem.code not in allowed] + refused


def not_ignored(code: str, why: str, spec: JobSpec) -> Problem:
    """Return the problem of a code that cannot be ignored."""
    in_spec = code in (spec.ignore or ())
    location = spec.locate(("ignore",)) if in_spec else Location("--ignore", 1, 1, code)
    return Problem(("ignore",) if in_spec else (), f"{code!r} {why}", "ignore-code", location=location)
