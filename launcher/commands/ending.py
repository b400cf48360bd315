"""What a command does when the job that it follows has ended: the summary for GitHub Actions, and the user's own command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import click

import launcher
from launcher.console import Console, in_actions
from launcher.cost.show import estimate_of_job

on_end_option = click.option(
    "--on-end",
    metavar="CMD",
    help="Run this shell command after the end of the followed job, with its NAME, STATUS, REASON and COST as variables.",
)


def after_end(outcome: launcher.Outcome, console: Console, on_end: str | None = None) -> None:
    """Add the outcome to the step's summary, and run the user's command; a failure of either is a warning.

    The command's output goes to stderr. Of the job it gets only what `launch status` prints, in which secrets are masked.
    """
    if outcome.interrupted:
        return
    try:
        _add_summary(f"{outcome.name}: {outcome.status}", outcome.rows())
    except OSError as error:
        console.warn(f"the step's summary cannot be written: {error}")
    if not on_end:
        return
    cost = estimate_of_job(outcome.description, outcome.region)
    usd = "" if cost is None or cost.usd is None else f"{cost.usd:.4f}"
    variables = {"NAME": outcome.name, "STATUS": outcome.status, "REASON": outcome.reason, "COST": usd}
    try:
        code = subprocess.run(on_end, shell=True, stdout=2, env={**os.environ, **variables}, check=False).returncode
        reason = f"it ended with exit code {code}" if code else ""
    except (KeyboardInterrupt, OSError, ValueError) as error:
        reason = str(error) or "interrupted"
    if reason:
        console.warn(f"--on-end {on_end}: {reason}; the job is {outcome.status}")


def _add_summary(title: str, rows: Iterable[tuple[str, str]]) -> None:
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
