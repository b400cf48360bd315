"""`launch logs NAME`: a job's lines so far, or with `--follow` until its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import click

import launcher
from launcher.commands import options
from launcher.commands.ending import after_end, on_end_option
from launcher.commands.jobs import is_local
from launcher.console import Console, json_text, json_timestamp, print_line
from launcher.jobs.follow import ReadLines, View
from launcher.jobs.lines import Line, Selection, check_host, lines_so_far
from launcher.jobs.lookup import describe
from launcher.jobs.metrics import plot
from launcher.jobs.outcome import ENDED


@options.command("logs", "logs digits-1 --since 1h", exit_codes=(0, 2, 3, 4, 5))
@options.job_argument
@options.group(
    "shown",
    click.option(
        "--follow/--no-follow", default=False, help="Continue until the job has ended, and report how it ended."
    ),
    click.option(
        "--since", type=options.moment_of, metavar="AGE", help="Leave out lines older than this, such as 10m, 2h or 1d."
    ),
    click.option("--tail", type=click.IntRange(1), metavar="N", help="Begin with the last N lines."),
    click.option("--host", metavar="HOST", help="Only the lines of one host, such as algo-2."),
    on_end_option,
    options.plot_option("Draw the job's metrics"),
    options.json_option,
)
@options.local_option
@options.account_options
def logs(name: str, shown: SimpleNamespace, local: bool, where: options.AccountOptions) -> int:
    """Show a job's lines, and follow it to its end.

    Those of all hosts of the training job NAME are shown by time. With --json, each is a JSON object. With --local, NAME is a
    local run, or latest, whose lines are shown host by host, and have no times. With --follow, the exit code is that of the job.
    """
    if shown.on_end and not shown.follow:
        raise click.UsageError("--on-end works only if the job is followed; add --follow")
    if is_local(name, local=local, where=where):
        return _logs_here(name, shown)
    since = int(shown.since.timestamp() * 1000) if shown.since else None
    selection = Selection(since=since, host=shown.host)
    account, console = where.open(), Console(as_json=shown.as_json)
    if not shown.follow or shown.tail is not None:
        description = describe(account, name)
        check_host(shown.host, description)
        lines: Iterable[Line] = lines_so_far(account, description, selection, console.warn)
        lines = deque(lines, maxlen=shown.tail) if shown.tail else lines
        if not shown.follow:
            _show(shown, console, description, lines)
            return 0
        selection = selection._replace(since=next((line.timestamp for line in lines), since))
    view = View(selection=selection, on_line=_print_json if shown.as_json else None, plot=shown.plot)
    outcome = launcher.follow(name, account=account, console=console, view=view)
    if shown.as_json:
        print_line(json_text(outcome.as_data()))
    after_end(outcome, console, shown.on_end)
    return outcome.exit_code


def _logs_here(name: str, shown: SimpleNamespace) -> int:
    """Print the lines of a local run; with `follow`, until its end, whose exit code is returned."""
    from launcher.jobs.outcome import Outcome
    from launcher.local.report import show
    from launcher.local.runs import lines_of, local_run

    if shown.since:
        raise click.UsageError("--since works only with jobs in AWS; the lines of a local run have no times")
    console, description = Console(as_json=shown.as_json), local_run(name)
    name = description["TrainingJobName"]
    check_host(shown.host, description)
    lines = lines_of(name, shown.host, follow=shown.follow)
    if shown.tail is not None:
        lines = islice(lines, max(0, sum(1 for _ in lines_of(name, shown.host)) - shown.tail), None)
    _show(shown, console, description, lines, is_local=True)
    if not shown.follow:
        return 0
    ended = local_run(name)
    if not shown.as_json and "Result" in ended:
        show(ended["Result"], console)
    outcome = Outcome(ended.get("Result", ended))
    after_end(outcome, console, shown.on_end)
    return outcome.exit_code


def _show(
    shown: SimpleNamespace,
    console: Console,
    description: Mapping[str, Any],
    lines: Iterable[Line],
    *,
    is_local: bool = False,
) -> None:
    name = description["TrainingJobName"]
    ended = shown.follow or description["TrainingJobStatus"] in ENDED
    read = ReadLines(description, console, partial(_print_json, is_timed=not is_local) if shown.as_json else None)
    for line in lines:
        read.show(line)
    if not read.count:
        remedy = "; leave out --since or --host for more" * bool(shown.since or shown.host)
        console.say(f"{name}: {description['SecondaryStatus']}; no lines{' yet' * (not ended)}{remedy}")
    for each in read.waits.worst():
        console.say(f"{name}: {each}")
    if not ended:
        console.say(f"{name} continues ({description['SecondaryStatus']}); --follow shows the rest")
    if shown.plot:
        plot({name: read.metrics.panels()}, shown.plot, console, is_timed=not is_local)


def _print_json(line: Line, *, is_timed: bool = True) -> None:
    at = json_timestamp(datetime.fromtimestamp(line.timestamp / 1000, timezone.utc))
    print_line(json_text({**({"timestamp": at} if is_timed else {}), "host": line.host, "message": line.message}))
