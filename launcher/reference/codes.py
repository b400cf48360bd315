"""The codes of problems: what each means, and which of them can be ignored.

The codes of preflight are asked for only where a code is none of the others: a dry run must not wait for what speaks to AWS.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checks import RULES
from launcher.checks.examples import laid_over_base
from launcher.errors import Problem
from launcher.nearest import did_you_mean
from launcher.spec.job import JobSpec

# Codes that are no rule's: of the YAML, of a spec's shape, of botocore's model, and of files.
OTHER_CODES = {
    "yaml-syntax": "The file is not YAML at this place.",
    "yaml-empty": "The file holds nothing.",
    "yaml-too-large": "The file is larger than 1 MB, or holds more than 5,000 values.",
    "yaml-encoding": "The file is not UTF-8.",
    "yaml-character": "The file holds a character that YAML does not allow, such as NUL.",
    "yaml-documents": "The file holds several documents; one file is one job.",
    "yaml-tag": "A tag such as `!!python/...` is not taken.",
    "yaml-alias": "An alias names nothing, or itself, or stands for too much.",
    "yaml-depth": "The nesting is deeper than any spec's.",
    "yaml-key": "A list, a mapping or nothing stands where a key belongs.",
    "duplicate-key": "A key is written twice in one mapping.",
    "unknown-key": "A key is misspelt, or belongs elsewhere.",
    "unknown-source": "A channel's `source` is no storage kind.",
    "unknown-value": "A value is none of those that a key of ours takes.",
    "wrong-type": "A value has the wrong type: text for a number, a list for a mapping.",
    "invalid-value": "A value is refused for another reason, which the message gives.",
    "aws-required": "AWS requires this member.",
    "aws-type": "AWS's member has another type.",
    "aws-enum": "The value is none of those that the installed botocore knows.",
    "aws-pattern": "The text does not match AWS's pattern.",
    "aws-min": "Shorter, fewer or smaller than AWS takes.",
    "aws-max": "Longer, more or larger than AWS takes.",
    "aws-unknown-member": "The request has no such member.",
    "image-unknown": "No image of AWS's is known for what `image` asks for.",
    "variable-not-set": "A `${NAME}` names an environment variable that is not set.",
    "spec-layer": "A file to extend, or a `--set`, cannot be laid over the spec.",
    "ignore-code": "What `ignore` names is no code, or an error that cannot be ignored.",
    "code-unreadable": "The code folder is missing, or holds what cannot be read.",
    "code-file-missing": "The code folder lacks a file that the spec names.",
    "code-package-toolkit": "The toolkit starts this code, and with a setup.py in the folder it cannot run it as the spec says.",
    "code-too-large": "More than 250 MB, or more than 20,000 files, would travel with the code.",
    "aws-refused": "AWS refused the request; the message is AWS's own.",
}

# Warnings that are no rule's, since they are about files.
OTHER_WARNINGS = {
    "code-requirements-unnamed": "A requirements.txt travels with the code, but `code.requirements` does not name it.",
    "code-skipped": "The code folder or a dependency holds broken links, FIFOs or sockets, which cannot travel.",
    "code-aws-keys": "An AWS secret access key seems to be in a file that travels with the code.",
}

# Errors that can be ignored all the same: the service may be newer than the installed model.
IGNORABLE_ERRORS = ("aws-enum",)


def ignorable() -> tuple[str, ...]:
    """The codes that `ignore:` and `--ignore` silence; all of preflight's, since a question can be asked too early."""
    return (*_ignorable_offline(), *preflight_codes())


def preflight_codes() -> Mapping[str, tuple[str, str]]:
    """The codes of preflight: code -> (severity, why)."""
    from launcher.preflight import CHECKS

    return {code: said for check in CHECKS for code, said in check.codes.items()}


def all_codes() -> tuple[str, ...]:
    """Every code that `--explain` knows."""
    return (*(rule.code for rule in RULES), *OTHER_CODES, *OTHER_WARNINGS, *preflight_codes())


def _ignorable_offline() -> tuple[str, ...]:
    return (*(rule.code for rule in RULES if rule.severity == "warning"), *OTHER_WARNINGS, *IGNORABLE_ERRORS)


def without_ignored(problems: list[Problem], spec: JobSpec, ignore: tuple[str, ...]) -> list[Problem]:
    """The problems without those whose code is to be ignored; and one for each code that cannot be."""
    silent = {*(spec.ignore or ()), *ignore}
    offline = _ignorable_offline()
    refused = []
    for code in sorted(silent.difference(offline)):
        known = code in OTHER_CODES or any(rule.code == code for rule in RULES)
        if not known and code in preflight_codes():
            continue
        why = "is an error, and errors cannot be ignored" if known else f"is no code{did_you_mean(code, ignorable())}"
        location = spec.locate(("ignore",)) if code in (spec.ignore or ()) else None
        refused.append(Problem(("ignore",), f"{code!r} {why}", "ignore-code", location=location))
    return [problem for problem in problems if problem.code not in silent or problem.code not in offline] + refused


def explanation(code: str) -> str | None:
    """The whole story of a code, for a terminal; None where there is no such code."""
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
        found = f"The check {check!r} finds it by asking AWS: `launch SPEC --check` asks again and changes nothing."
        silence = f"`--ignore {code}` says nothing of it, for what will be right by the time the job runs."
        return f"{code} ({severity}, found by asking AWS)\n\n{why}\n\n{found}\n{silence}\n"
    return None


def _told(code: str, severity: str, story: str, wrong: str, right: str) -> str:
    wrong, right = (_indented(_of(example)) for example in (wrong, right))
    return f"{code} ({severity})\n\n{story}\n\nwrong:\n\n{wrong}\nright:\n\n{right}"


def _of(example: str) -> str:
    """An example without the lines that every example has."""
    common = set(laid_over_base("").splitlines())
    return "\n".join(line for line in laid_over_base(example).splitlines() if line not in common) or example


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
