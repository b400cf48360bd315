"""What GitHub Actions shows of a command: problems as annotations, and the outcome of a job in the step's summary.

Source: GitHub's documentation, "Workflow commands for GitHub Actions". The characters to escape are those of its toolkit
(actions/toolkit, packages/core/src/command.ts).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from launcher.errors import Location

_IN_MESSAGES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES = _IN_MESSAGES | str.maketrans({":": "%3A", ",": "%2C"})


def in_actions() -> bool:
    """Return whether this process is a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotation(severity: str, message: str, title: str, at: Location | None = None) -> str:
    """Return the workflow command that shows a message as an annotation, at its line if it is in a file of the repository."""
    place = {}
    if at and at.line and Path(at.file).is_file():
        file = os.path.relpath(at.file, os.environ.get("GITHUB_WORKSPACE") or ".")
        place = {"file": file, "line": str(at.line), "col": str(at.column)}
    properties = ",".join(
        f"{name}={value.translate(_IN_PROPERTIES)}" for name, value in {**place, "title": title}.items()
    )
    return f"::{severity} {properties}::{message.translate(_IN_MESSAGES)}"


def add_summary(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Append a heading and a table to the step's summary, if there is one. Raises OSError."""
    if not in_actions() or not (file := os.environ.get("GITHUB_STEP_SUMMARY")):
        return
    lines = [
        f"### {_cell(title)}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {_cell(name)} | {_cell(text)} |" for name, text in rows),
    ]
    with Path(file).open("a", encoding="utf-8") as summary:
        summary.write("\n".join(lines) + "\n\n")


def _cell(text: str) -> str:
    """Return a text as GitHub's Markdown shows it in a cell; `#` and `_` mean nothing there, and an escape would break a URL."""
    shown = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in "\\|`*[]" else each for each in shown)
