"""`launch list`: the training jobs of the account."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from launcher.commands.options import account_options, json_option, moment_of, open_account
from launcher.console import COLOUR, say
from launcher.jobs.lookup import jobs

_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped")
_TITLES = ("name", "status", "created", "took")
_GAP = "  "
STATUS_COLOURS = {"Completed": "green", "Failed": "red", "InProgress": "cyan"}


@click.command("list", short_help="List training jobs, the latest first.")
@click.argument("contains", required=False, metavar="[TEXT]")
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only jobs of this status.")
@click.option("--since", metavar="AGE", help="Only jobs created in this time, such as 90m, 12h or 7d.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many.")
@account_options
@json_option
def command(
    contains: str | None, status: str | None, since: str | None, limit: int, as_json: bool, **where: Any
) -> None:
    """List training jobs, the latest first; with TEXT, those whose name contains it."""
    account = open_account(where["region"], where["profile"])
    created_after = moment_of(since) if since else None
    found = list(jobs(account, status=status, contains=contains, since=created_after, limit=limit))
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
    elif not found:
        filtered = " of this kind; ask for less" if contains or status or since else "; `launch job.yaml` makes one"
        say(f"no training jobs in {account.region}{filtered}")
    else:
        _show(found)
        if len(found) == limit:
            say(f"the latest {limit}; --limit shows more")


def _show(found: list[dict[str, Any]]) -> None:
    """A line for each; on a terminal that is too narrow for all of it, the name is what stays."""
    rows = [_row(job) for job in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        while len(widths) > 1 and sum(widths) + len(_GAP) * (len(widths) - 1) > room:
            widths.pop()
        click.secho(_line(_TITLES, widths), dim=True, color=COLOUR)
    for row in rows:
        click.echo(_line(row, widths, STATUS_COLOURS.get(row[1], "yellow")), color=COLOUR)


def _row(job: Mapping[str, Any]) -> tuple[str, str, str, str]:
    status, end = job["TrainingJobStatus"], job.get("TrainingEndTime") or job.get("LastModifiedTime")
    took = str(end - job["CreationTime"]).partition(".")[0] if end and status != "InProgress" else "-"
    created = job["CreationTime"].astimezone().strftime("%Y-%m-%d %H:%M")
    return job["TrainingJobName"], status, created, took


def _line(cells: Sequence[str], widths: Sequence[int], colour: str | None = None) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    padded[-1] = padded[-1].rstrip()
    if colour and len(padded) > 1:
        padded[1] = click.style(padded[1], fg=colour)
    return _GAP.join(padded)
