"""`launch logs NAME`: a job's lines so far, or with `--follow` until its end."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path

import launcher
from launcher.aws.account import Account, AwsError
from launcher.commands.card import Command
from launcher.commands.options import JOB_NAME, AccountOptions, moment_of, option, plot_file
from launcher.console import Console, json_text, print_line, shown_path
from launcher.jobs.follow import View, line_printer
from launcher.jobs.logs.job_logs import lines_so_far
from launcher.jobs.logs.loop_waits import LoopWaits
from launcher.jobs.logs.metrics import Metrics, plot
from launcher.jobs.logs.streams import Line, Selection, check_host
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import ENDED


class Logs(AccountOptions, Command):
    """Show a job's lines, and follow it to its end.

    Show the lines of the training job NAME, those of all hosts by time. With --json, each is a JSON object.
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
        since = int(self.since.timestamp() * 1000) if self.since else None
        selection = Selection(since=since, host=self.host)
        account, console = self.account(), Console(as_json=self.as_json)
        if not self.follow:
            return self._show(account, console, selection)
        view = View(selection=selection, on_line=_print_json if self.as_json else None, plot=self.plot)
        outcome = launcher.follow(self.name, account=account, console=console, view=view)
        if self.as_json:
            print_line(json_text(outcome.as_data()))
        return outcome.exit_code

    def _show(self, account: Account, console: Console, selection: Selection) -> int:
        """Print the lines written so far."""
        name = self.name
        description = describe(account, name)
        check_host(self.host, description)
        ended = description["TrainingJobStatus"] in ENDED
        if not ended:  # a job may write faster than its lines are read, and this would never end
            selection = selection._replace(until=int(time.time() * 1000) + 1)
        metrics = Metrics(description.get("AlgorithmSpecification", {}).get("MetricDefinitions", ()), console.warn)
        show = _print_json if self.as_json else line_printer(console)
        waits, count = LoopWaits(), 0
        for line in lines_so_far(account, name, selection, on_trouble=lambda error: _warn(console, error)):
            show(line)
            metrics.note(line.timestamp, line.host, line.message)
            waits.note(line.message)
            count += 1
        if not count and (selection.since or selection.host):
            of_host, in_time = f"of {selection.host} " * bool(selection.host), "in this time " * bool(selection.since)
            console.say(f"{name}: no lines {of_host}{in_time}".rstrip() + "; leave out --since or --host for more")
        elif not count:
            console.say(f"{name}: {description['SecondaryStatus']}; no lines{' yet' * (not ended)}")
        for each in waits.worst():
            console.say(f"{name}: {each}")
        if not ended:
            console.say(f"{name} continues ({description['SecondaryStatus']}); --follow shows the rest")
        if self.plot:
            drawn = plot(metrics.panels(), name, self.plot)
            console.say(f"plot {shown_path(self.plot)}" if drawn else f"{self.plot}: not drawn; no metrics were found")
        return 0


def _warn(console: Console, error: AwsError) -> None:
    if not error.is_throttled:
        console.warn(f"{error}; trying again until it works")


def _print_json(line: Line) -> None:
    at = datetime.fromtimestamp(line.timestamp / 1000, timezone.utc)
    shown = {"timestamp": at.isoformat(timespec="milliseconds"), "host": line.host, "message": line.message}
    print_line(json_text(shown))
