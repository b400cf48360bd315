"""`launch logs NAME`: what a job has said, and with `--follow` what it says until its end."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

import launcher
from launcher.aws.account import Account, AwsError
from launcher.commands.completion import job_names
from launcher.commands.options import account_options, json_option, moment_of, open_account
from launcher.console import Console, shown_path
from launcher.jobs.logs.streams import Line, Selection


@click.command("logs", short_help="Show what a job has said, and follow it to its end.")
@click.argument("name", shell_complete=job_names)
@click.option("--follow/--no-follow", default=False, help="Go on until the job has ended, and say how it did.")
@click.option("--since", metavar="AGE", help="Leave out what is older: 10m, 2h, 1d.")
@click.option("--host", metavar="HOST", help="One host's lines only: algo-2.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the job's metrics into a .png or .svg file.",
)
@account_options
@json_option
def command(name: str, **options: Any) -> None:
    """Show the lines of the training job NAME, all hosts in the order of time. With --json, each is a JSON object."""
    as_json, file = options["as_json"], options["plot"]
    if file:
        from launcher.jobs.logs.plot import check

        check(file)
    since = int(moment_of(options["since"]).timestamp() * 1000) if options["since"] else None
    selection = Selection(since=since, host=options["host"])
    account, console = open_account(options["region"], options["profile"]), Console(as_json=as_json)
    if options["follow"]:
        raise click.exceptions.Exit(_follow(account, name, console, selection, options))
    _show(account, name, console, selection, options)


def _follow(account: Account, name: str, console: Console, selection: Selection, options: dict[str, Any]) -> int:
    from launcher.jobs.follow import View

    on_line = _print_json if options["as_json"] else None
    view = View(selection=selection, on_line=on_line, plot=options["plot"])
    outcome = launcher.follow(name, account=account, console=console, view=view)
    if options["as_json"]:
        click.echo(json.dumps(outcome.as_data()))
    return outcome.exit_code


def _show(account: Account, name: str, console: Console, selection: Selection, options: dict[str, Any]) -> None:
    """What there is now."""
    from launcher.jobs.follow import LinePrinter
    from launcher.jobs.logs.hosts import check_host, hosts_of
    from launcher.jobs.logs.lines import lines_so_far
    from launcher.jobs.logs.metrics import Metrics
    from launcher.jobs.logs.plot import plot
    from launcher.jobs.lookup import describe
    from launcher.jobs.outcome import ENDED

    description = describe(account, name)
    check_host(selection.host, hosts_of(description), name)
    ended = description["TrainingJobStatus"] in ENDED
    if not ended:  # else a job that talks faster than it is read would be followed after all
        selection = selection._replace(until=int(time.time() * 1000) + 1)
    metrics = Metrics(description.get("AlgorithmSpecification", {}).get("MetricDefinitions", ()), console.warn)
    show = _print_json if options["as_json"] else LinePrinter(console)
    count = 0
    for line in lines_so_far(account, name, selection, on_trouble=lambda error: _tell(console, error)):
        show(line)
        metrics.note(line.timestamp, line.host, line.message)
        count += 1
    if not count:
        if selection.since or selection.host:
            who = f"{selection.host} of {name}" if selection.host else name
            console.say(
                f"{who} has said nothing{' since then' if selection.since else ''}; leave out --since or --host for more"
            )
        else:
            console.say(f"{name} is {description['SecondaryStatus']} and has said nothing{' yet' * (not ended)}")
    if not ended:
        console.say(f"{name} goes on ({description['SecondaryStatus']}); --follow shows the rest")
    if options["plot"]:
        drawn = plot(metrics.panels(), name, options["plot"])
        console.say(f"plot {shown_path(options['plot'])}" if drawn else "no metric was found, so nothing is drawn")


def _tell(console: Console, error: AwsError) -> None:
    if not error.is_throttled:
        console.warn(f"{error}; trying again until it works")


def _print_json(line: Line) -> None:
    at = datetime.fromtimestamp(line.timestamp / 1000, timezone.utc)
    shown = {"timestamp": at.isoformat(timespec="milliseconds"), "host": line.host, "message": line.message}
    click.echo(json.dumps(shown, ensure_ascii=False))
