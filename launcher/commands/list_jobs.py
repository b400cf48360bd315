"""`launch list`: the training jobs of the account."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from launcher.commands.card import Command
from launcher.commands.options import JobOptions, argument, moment_of, option
from launcher.console import print_line, say
from launcher.jobs.lookup import jobs

_TITLES = ("name", "status", "created", "took")
_GAP = "  "
_COLOURS = {"Completed": "green", "Failed": "red", "InProgress": "cyan"}


class _Status(click.Choice[str]):
    """A TrainingJobStatus, in any case; click's own `case_sensitive=False` would show all of them in lower case."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        by_folded = {known.casefold(): known for known in self.choices}
        return super().convert(by_folded.get(value.casefold(), value), param, ctx)


class ListJobs(JobOptions, Command):
    """List training jobs, the latest first.

    List training jobs, the latest first; with TEXT, those whose name contains it. With --local, list the local runs of this folder.
    """

    example = "list digits --status InProgress"

    contains: str | None = argument(required=False, metavar="[TEXT]")
    status: str | None = option(
        type=_Status(("InProgress", "Completed", "Failed", "Stopping", "Stopped", "Deleting")),
        help="Only jobs with this status.",
    )
    since: datetime | None = option(
        type=moment_of, metavar="AGE", help="Only jobs created in this time, such as 90m, 12h or 7d."
    )
    limit: int = option(default=20, type=click.IntRange(1, 10_000), show_default=True, help="At most this many jobs.")

    def run(self) -> int:
        where, found = self._found_here() if self.local else self._found_in_account()
        if self.as_json:
            self.print_json(found)
        elif not found:
            filtered = self.contains or self.status or self.since
            first = f"exist; `launch job.yaml{' --local' * self.local}` creates one"
            remedy = "match; widen TEXT, --status or --since" if filtered else first
            say(f"{where}: no {'local runs' if self.local else 'training jobs'} {remedy}")
        else:
            _show(found)
            if len(found) == self.limit:
                say(f"the latest {self.limit}; --limit shows more")
        return 0

    def _found_in_account(self) -> tuple[str, list[dict[str, Any]]]:
        account = self.account()
        filters = {"StatusEquals": self.status, "NameContains": self.contains, "CreationTimeAfter": self.since}
        return account.region, list(jobs(account, self.limit, **filters))

    def _found_here(self) -> tuple[str, list[dict[str, Any]]]:
        from launcher.local.runs import RUNS_FOLDER, local_runs

        shown = ("TrainingJobName", "TrainingJobStatus", "CreationTime", "TrainingEndTime", "Folder")
        found = [
            {name: run[name] for name in shown if name in run}
            for run in local_runs()
            if (self.contains or "") in run["TrainingJobName"]
            and self.status in (None, run["TrainingJobStatus"])
            and (self.since is None or run["CreationTime"] >= self.since)
        ]
        return f"./{RUNS_FOLDER}", found[: self.limit]


def _show(found: list[dict[str, Any]]) -> None:
    """Print a row for each job; a terminal too narrow for all columns loses the last ones."""
    rows = [_row(job) for job in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        while len(widths) > 1 and sum(widths) + len(_GAP) * (len(widths) - 1) > room:
            widths.pop()
        print_line(_line(_TITLES, widths), dim=True)
    for row in rows:
        print_line(_line(row, widths, _COLOURS.get(row[1], "yellow")), keep_colours=True)


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
