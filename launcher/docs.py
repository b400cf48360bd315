"""The generated parts of README.md: `python -m launcher.docs README.md` brings them up to date, `--check` says if they are not.

A part lies between `<!-- NAME: generated -->` and `<!-- end -->`. A test keeps them current.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import channel_specs
from launcher.checks import RULES

# Codes that are no rule's: of the YAML, of a spec's shape, of botocore's model, and of files.
OTHER_CODES = {
    "yaml-syntax": "The file is not YAML at this place.",
    "yaml-empty": "The file holds nothing.",
    "yaml-too-large": "The file is larger than 1 MB.",
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
    "code-file-missing": "The code folder lacks a file that the spec names.",
}


def specs_table() -> str:
    """The bundled specs, a row each."""
    rows = [
        f"| [{name}](channel_specs/{name}.yaml) | {channel_specs.summary(name)} |" for name in channel_specs.names()
    ]
    return "\n".join(["| spec | what it shows |", "|---|---|", *rows])


def codes_table() -> str:
    """Every code, a row each: the rules in the order in which they are checked, then the others."""
    rows = [f"| `{rule.code}` | {rule.severity} | {_first_paragraph(rule.find)} |" for rule in RULES]
    rows += [f"| `{code}` | error | {text} |" for code, text in OTHER_CODES.items()]
    return "\n".join(["| code | severity | why |", "|---|---|---|", *rows])


def _first_paragraph(function: Callable[..., object]) -> str:
    return " ".join((function.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")


PARTS: dict[str, Callable[[], str]] = {"specs": specs_table, "codes": codes_table}


def updated(text: str) -> str:
    """A text with its generated parts up to date. Raises KeyError for a part that nothing generates."""

    def part(found: re.Match[str]) -> str:
        return f"{found[1]}\n{PARTS[found[2]]()}\n{found[4]}"

    return re.sub(r"(<!-- (\w+): generated -->)\n(.*?)(<!-- end -->)", part, text, flags=re.DOTALL)


if __name__ == "__main__":
    readme = Path(sys.argv[-1])
    before = readme.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        sys.exit(updated(before) != before)
    readme.write_text(updated(before), encoding="utf-8")
