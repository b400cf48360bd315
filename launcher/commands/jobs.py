"""`launch status`, `list` and `stop`: jobs in the account, and local runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

import launcher
from launcher.aws.account import AwsError
from launcher.commands import options
from launcher.console import Console, print_line, say, timestamp
from launcher.errors import LaunchError
from launcher.jobs.lookup import describe, jobs
from launcher.jobs.outcome import ENDED, Statuses

_TITLES = ("name", "status", "created", "took")
_GAP = "  "
_COLOURS = {"Completed": "green", "Failed": "red", "InProgress": "cyan"}
_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped", "Deleting")


class _Status(click.Choice[str]):
    """A TrainingJobStatus, in any case; click's own `case_sensitive=False` would show all of them in lower case."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        by_folded = {known.casefold(): known for known in self.choices}
        return super().convert(by_folded.get(value.casefold(), value), param, ctx)


@options.command("status", "status digits-1")
@options.jobs_argument
@options.local_option
@options.account_options
@options.json_option
def status(names: tuple[str, ...], local: bool, where: options.AccountOptions, as_json: bool) -> None:
    """Show what jobs are doing, or how they ended.

    It shows the statuses of each training job NAME with their times, why it is pending, the latest metrics, what its training
    loops wait for, the billed time and its cost so far, its warm pool, outputs and failure, and links. With --local, each NAME is
    a local run, or latest. With --json, several names make a list. The exit code does not depend on how a job ended.
    """
    console, account = Console(as_json=as_json, says_on=None if as_json else sys.stdout), where.open()

    def show(name: str) -> Any:
        if is_local(name, local=local, where=where):
            return _show_local(name, as_json=as_json)
        outcome = launcher.status(name, account=account, console=console)
        if not as_json:
            Statuses(console.say).show(outcome.description)
            outcome.show(console)
        return outcome.as_data()

    options.for_each(names, show, as_json=as_json)


def is_local(name: str, *, local: bool, where: options.AccountOptions) -> bool:
    """Return whether a name is that of a local run: with `--local`, or if one has it and AWS, as is said, shows no such job."""
    from launcher.local.runs import RUNS_FOLDER

    is_here = Path(RUNS_FOLDER, "" if name == "latest" else name).is_dir()
    if local or where != options.AccountOptions(None, None) or not is_here:
        return local
    try:
        describe(where.open(), name)
    except LaunchError as error:
        reason, _, _ = str(error).partition(";")
        say(f"this is the local run ./{RUNS_FOLDER}/{name}: {reason}")
        return True
    say(f"./{RUNS_FOLDER}/{name} is a local run of this name; --local shows it")
    return False


def _show_local(name: str, *, as_json: bool) -> Any:
    """Print a local run, unless `as_json`, and return its data."""
    from launcher.local.report import show
    from launcher.local.runs import local_run

    run, console = local_run(name), Console(says_on=sys.stdout)
    name, result = run["TrainingJobName"], run.get("Result")
    if as_json:
        shown = ("TrainingJobName", "TrainingJobStatus", "SecondaryStatus", "CreationTime", "Folder")
        return result or {member: run[member] for member in shown}
    if result:
        show(result, console)
    else:
        more = f"`launch logs {name} --local --follow` shows its lines"
        if run["TrainingJobStatus"] != "InProgress":
            more = "its `launch` was killed, so it has no result"
        console.say(f"{name}: {run['TrainingJobStatus']}, began {timestamp(run['CreationTime'])}; {more}")
        console.say(f"  folder   {run['Folder']}")
    return None


@options.command("list", "list digits --status InProgress")
@click.argument("contains", required=False, metavar="[TEXT]")
@click.option("--status", type=_Status(_STATUSES), help="Only jobs with this status.")
@click.option(
    "--since", type=options.moment_of, metavar="AGE", help="Only jobs created in this time, such as 90m, 12h or 7d."
)
@click.option("--limit", default=20, type=click.IntRange(1, 10_000), show_default=True, help="At most this many jobs.")
@options.local_option
@options.account_options
@options.json_option
def list_jobs(
    contains: str | None,
    status: str | None,
    since: datetime | None,
    limit: int,
    local: bool,
    where: options.AccountOptions,
    as_json: bool,
) -> None:
    """List training jobs, the latest first.

    With TEXT, those whose name contains it are listed, and with --local the local runs of this folder.
    """
    if local:
        from launcher.local.runs import RUNS_FOLDER, local_runs

        place, members = f"./{RUNS_FOLDER}", (*("TrainingJobName", "TrainingJobStatus"), *("CreationTime", "Folder"))
        found = [
            {member: run[member] for member in (*members, "TrainingEndTime") if member in run}
            for run in local_runs()
            if (contains or "") in run["TrainingJobName"]
            and status in (None, run["TrainingJobStatus"])
            and (since is None or run["CreationTime"] >= since)
        ][:limit]
    else:
        account = where.open()
        place = account.region
        found = list(jobs(account, limit, StatusEquals=status, NameContains=contains, CreationTimeAfter=since))
    if as_json:
        options.print_json(found)
    elif not found:
        filtered = contains or status or since
        first = f"exist; `launch job.yaml{' --local' * local}` creates one"
        remedy = "match; widen TEXT, --status or --since" if filtered else first
        say(f"{place}: no {'local runs' if local else 'training jobs'} {remedy}")
    else:
        _show(found)
        if len(found) == limit:
            say(f"the latest {limit}; --limit shows more")


@options.command("stop", "stop digits-1")
@options.job_argument
@options.account_options
@options.json_option
def stop(name: str, where: options.AccountOptions, as_json: bool) -> None:
    """Stop a job and keep what it has saved.

    The script of the training job NAME gets SIGTERM and 120 s; its checkpoints and model are uploaded. It is no error if the job
    is stopping or has ended already.
    """
    account = where.open()
    status = describe(account, name)["TrainingJobStatus"]
    already = "already " if status == "Stopping" else ""
    if status not in (*ENDED, "Stopping"):
        try:
            account.call("sagemaker", "stop_training_job", TrainingJobName=name)
            status = "Stopping"
        except AwsError:
            status = describe(account, name)["TrainingJobStatus"]  # the job may have ended meanwhile
            if status not in (*ENDED, "Stopping"):
                raise
    if as_json:
        options.print_json({"TrainingJobName": name, "TrainingJobStatus": status})
    elif status == "Stopping":
        end = f"`launch logs {name}{account.options} --follow` shows the end"
        say(f"{name}: {already}stopping; its script has 120 s to save. {end}")
    else:
        say(f"{name}: already {status}")


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
    return job["TrainingJobName"], status, timestamp(job["CreationTime"]), took


def _line(cells: Sequence[str], widths: Sequence[int], colour: str | None = None) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    padded[-1] = padded[-1].rstrip()
    if colour and len(padded) > 1:
        padded[1] = click.style(padded[1], fg=colour)
    return _GAP.join(padded)
