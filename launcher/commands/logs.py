"""`launch logs NAME`: a job's lines so far, or with `--follow` until its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

import launcher
from launcher.aws.account import AwsError
from launcher.commands.card import Command
from launcher.commands.options import JOB_NAME, JobOptions, moment_of, option, plot_file
from launcher.console import Console, json_text, print_line, shown_path
from launcher.jobs.follow import View, line_printer
from launcher.jobs.logs.job_logs import lines_so_far
from launcher.jobs.logs.loop_waits import LoopWaits
from launcher.jobs.logs.metrics import Metrics, plot
from launcher.jobs.logs.streams import Line, Selection, check_host, creation_of
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import ENDED


class Logs(JobOptions, Command):
    """Show a job's lines, and follow it to its end.

    Show the lines of the training job NAME, those of all hosts by time. With --json, each is a JSON object.
    With --local, NAME is a local run, or latest, whose lines are shown host by host, and have no times.
    """

    exit_codes = (0, 2, 3, 4, 5)
    example = "logs digits-1 --since 1h"

    name: str = JOB_NAME
    follow: bool = option(
        "--follow/--no-follow", default=False, help="Continue until the job has ended, and report how it ended."
    )
    since: datetime | None = option(type=moment_of, metavar="AGE", help="Leave out older lines: 10m, 2h, 1d.")
    host: str | None = option(metavar="HOST", help="Only the lines of one host: algo-2.")
    plot: Path | None = plot_file("Draw the job's metrics")

    def run(self) -> int:
        """Print the lines; with `follow`, the exit code is that of the job's end."""
        if self.is_local(self.name):
            return self._show_local()
        since = int(self.since.timestamp() * 1000) if self.since else None
        selection = Selection(since=since, host=self.host)
        account, console = self.account(), Console(as_json=self.as_json)
        if not self.follow:
            description = describe(account, self.name)
            check_host(self.host, description)
            selection = selection._replace(created=creation_of(description))
            if description["TrainingJobStatus"] not in ENDED:
                # A job may write faster than its lines are read, and this would never end.
                selection = selection._replace(until=int(time.time() * 1000) + 1)
            lines = lines_so_far(account, self.name, selection, on_trouble=lambda error: _warn(console, error))
            self._show(console, description, lines)
            return 0
        view = View(selection=selection, on_line=_print_json if self.as_json else None, plot=self.plot)
        outcome = launcher.follow(self.name, account=account, console=console, view=view)
        if self.as_json:
            print_line(json_text(outcome.as_data()))
        return outcome.exit_code

    def _show_local(self) -> int:
        """Print the lines of a local run; with `follow`, until its end, whose exit code is returned."""
        from launcher.jobs.outcome import Outcome
        from launcher.local.report import show
        from launcher.local.runs import lines_of, local_run

        if self.since:
            raise click.UsageError("--since works only with jobs in AWS; the lines of a local run have no times")
        console, description = Console(as_json=self.as_json), local_run(self.name)
        name = description["TrainingJobName"]
        check_host(self.host, description)
        self._show(console, description, lines_of(name, self.host, follow=self.follow), is_local=True)
        ended = local_run(name)
        if self.follow and not self.as_json and "Result" in ended:
            show(ended["Result"], console)
        return Outcome(ended).exit_code if self.follow else 0

    def _show(
        self, console: Console, description: Mapping[str, Any], lines: Iterable[Line], *, is_local: bool = False
    ) -> None:
        """Print the lines, and what they say of the job."""
        name = description["TrainingJobName"]
        ended = self.follow or description["TrainingJobStatus"] in ENDED
        metrics = Metrics(description.get("AlgorithmSpecification", {}).get("MetricDefinitions", ()), console.warn)
        print_json = _print_json_untimed if is_local else _print_json
        show = print_json if self.as_json else line_printer(console)
        waits, count = LoopWaits(), 0
        for line in lines:
            show(line)
            metrics.note(line.timestamp, line.host, line.message)
            waits.note(line.message)
            count += 1
        if not count and (self.since or self.host):
            of_host, in_time = f"of {self.host} " * bool(self.host), "in this time " * bool(self.since)
            console.say(f"{name}: no lines {of_host}{in_time}".rstrip() + "; leave out --since or --host for more")
        elif not count:
            console.say(f"{name}: {description['SecondaryStatus']}; no lines{' yet' * (not ended)}")
        for each in waits.worst():
            console.say(f"{name}: {each}")
        if not ended:
            console.say(f"{name} continues ({description['SecondaryStatus']}); --follow shows the rest")
        if self.plot:
            drawn = plot(metrics.panels(), name, self.plot, is_timed=not is_local)
            console.say(f"plot {shown_path(self.plot)}" if drawn else f"{self.plot}: not drawn; no metrics were found")


def _warn(console: Console, error: AwsError) -> None:
    if not error.is_throttled:
        console.warn(f"{error}; trying again until it works")


def _print_json_untimed(line: Line) -> None:
    print_line(json_text({"host": line.host, "message": line.message}))


def _print_json(line: Line) -> None:
    at = datetime.fromtimestamp(line.timestamp / 1000, timezone.utc)
    shown = {"timestamp": at.isoformat(timespec="milliseconds"), "host": line.host, "message": line.message}
    print_line(json_text(shown))
