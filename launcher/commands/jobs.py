"""`launch status`, `list` and `stop`: jobs in the account, and local runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import click

import launcher
from launcher.columns import print_table
from launcher.commands import options
from launcher.console import Console, say, timestamp
from launcher.cost.estimate import cluster_of
from launcher.cost.show import dollars, estimate_of_job, machines_of
from launcher.errors import LaunchError, RefusedError
from launcher.jobs.batch_queue import service_jobs
from launcher.jobs.lookup import describe, jobs_with_settings, names_created_by_caller
from launcher.jobs.lookup import stop as stop_job
from launcher.jobs.outcome import ENDED, Statuses

_TITLES = ("name", "status", "created", "took", "instances", "cost")
_MEMBERS = (
    *("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "SecondaryStatus", "CreationTime", "TrainingStartTime"),
    *("TrainingEndTime", "LastModifiedTime", "BillableTimeInSeconds", "ResourceConfig", "WarmPoolStatus"),
    *("Tags", "ServiceJob"),
)


class _Status(click.Choice[str]):
    """A status in any case, shown as AWS writes it; click alone would show the choices in lower case."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return next((each for each in self.choices if each.lower() == str(choice).lower()), str(choice))


def _tag(text: str) -> tuple[str, str]:
    """Return the key and value of `KEY=VALUE`. Raises click.BadParameter for anything else."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"expected KEY=VALUE, such as team=vision, got {text!r}")
    return key, value


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

    # Not if it is another user's.
    is_here = bool(name) and options.is_folder(f"{RUNS_FOLDER}/{'' if name == 'latest' else name}")
    if local or where != options.AccountOptions(None, None) or not is_here:
        return local
    try:
        describe(where.open(), name)
    except LaunchError as error:
        reason, _, _ = str(error).partition(";")
        say(f"{name} is read from ./{RUNS_FOLDER}, since {reason}")
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
@click.option(
    "--status",
    type=_Status(("InProgress", "Completed", "Failed", "Stopping", "Stopped", "Deleting"), case_sensitive=False),
    help="Only jobs with this status.",
)
@click.option(
    "--since", type=options.moment_of, metavar="AGE", help="Only jobs created in this time, such as 90m, 12h or 7d."
)
@options.many("--tag", "tags", type=_tag, metavar="KEY=VALUE", help="Only jobs with this tag. Repeatable.")
@options.flag("--mine", help="Only jobs that you created, as CloudTrail records it: of 90 days, some minutes late.")
@click.option("--queue", metavar="QUEUE", help="The jobs of this AWS Batch queue, with those that wait.")
@click.option("--limit", default=20, type=click.IntRange(1, 10_000), metavar="N", help="At most this many jobs.")
@options.local_option
@options.account_options
@options.json_option
def list_jobs(
    contains: str | None,
    status: str | None,
    since: datetime | None,
    tags: tuple[tuple[str, str], ...],
    mine: bool,
    queue: str | None,
    limit: int,
    local: bool,
    where: options.AccountOptions,
    as_json: bool,
) -> None:
    """List training jobs, the latest first.

    With TEXT, those whose name contains it are listed, and with --local the local runs of this folder. A job in AWS has its
    instances and estimated cost, so far if it runs. With --queue, those of a queue are listed by the names that
    they were submitted with.
    """
    region = None
    if local:
        options.refuse_together("local", "tags", "mine", "queue")
        from launcher.local.runs import RUNS_FOLDER

        place, found = f"./{RUNS_FOLDER}", _local_jobs(contains, status, since)[:limit]
    elif queue is not None:
        options.refuse_together("queue", "tags", "mine")
        account = where.open()
        place = f"{queue}, {account.region}"
        of_queue = (job for job in service_jobs(account, queue, since) if (contains or "") in job["TrainingJobName"])
        wanted = ("InProgress", "Queued") if status == "InProgress" else (status,)
        found = list(islice((job for job in of_queue if not status or job["TrainingJobStatus"] in wanted), limit))
    else:
        account = where.open()
        place = region = account.region
        since = since or (options.moment_of("90d") if mine else None)
        names = names_created_by_caller(account, since) if mine and since else None
        filters = {"StatusEquals": status, "NameContains": contains, "CreationTimeAfter": since}
        found = jobs_with_settings(account, limit, dict(tags), names, Console().warn, **filters)
    if as_json:
        options.print_json([as_data(job, region) for job in found] if region else found)
    elif not found:
        wider = "widen TEXT and the options that filter, or " * bool(contains or status or since or tags)
        remedy = f"{wider}create one by `launch job.yaml{' --local' * local}`"
        say(f"{place}: no {'local runs' if local else 'training jobs'}; {remedy}")
    else:
        print_jobs(found, region)
        if len(found) == limit:
            say(f"the latest {limit}; --limit shows more")


def _local_jobs(contains: str | None, status: str | None, since: datetime | None) -> list[dict[str, Any]]:
    from launcher.local.runs import local_runs

    members = ("TrainingJobName", "TrainingJobStatus", "CreationTime", "Folder", "TrainingEndTime")
    return [
        {member: run[member] for member in members if member in run}
        for run in local_runs()
        if (contains or "") in run["TrainingJobName"]
        and status in (None, run["TrainingJobStatus"])
        and (since is None or run["CreationTime"] >= since)
    ]


@options.command("stop", "stop digits-1")
@options.jobs_argument
@options.account_options
@options.json_option
def stop(names: tuple[str, ...], where: options.AccountOptions, as_json: bool) -> None:
    """Stop jobs and keep what they have saved.

    The script of each training job NAME gets SIGTERM and 120 s; its checkpoints and model are uploaded. It is no error if a job is
    stopping or has ended already. With --json, several names make a list.
    """
    account = where.open()

    def stop_one(name: str) -> dict[str, str]:
        if is_local(name, local=False, where=where):
            from launcher.local.runs import how_to_stop, local_run

            run = local_run(name)
            if (status := str(run["TrainingJobStatus"])) == "InProgress":
                raise RefusedError(f"{name} is a local run; to stop it, {how_to_stop(run)}")
            line = f"{name}: already {status}"
        else:
            status, line = stop_job(account, name)
        if not as_json:
            say(line)
        return {"TrainingJobName": name, "TrainingJobStatus": status}

    options.for_each(names, stop_one, as_json=as_json)


def print_jobs(found: Sequence[Mapping[str, Any]], region: str | None) -> None:
    rows = [_row(job, region) for job in found]
    width = max(map(len, rows))
    print_table(_TITLES[:width], [(*row, *["-"] * (width - len(row))) for row in rows])


def _row(job: Mapping[str, Any], region: str | None) -> tuple[str, ...]:
    now, status = datetime.now(timezone.utc), job["TrainingJobStatus"]
    if status == "InProgress" and job.get("SecondaryStatus") == "Queued":
        status = "Queued"
    ended = job.get("TrainingEndTime") or (job.get("LastModifiedTime") if status in ENDED else now)
    took = str(ended - job["CreationTime"]).partition(".")[0] if ended else "-"
    cluster, cost = cluster_of(job.get("ResourceConfig") or {}, region), estimate_of_job(job, region, now=now)
    dollar = "-" if cost is None else "unknown" if cost.usd is None else dollars(cost.usd)
    known = (machines_of(cluster) if cluster else "-", dollar) if "ResourceConfig" in job else ()
    name = job.get("ServiceJob", job).get("Name", job["TrainingJobName"])
    return name, status, timestamp(job["CreationTime"]), took, *known


def as_data(job: Mapping[str, Any], region: str | None) -> dict[str, Any]:
    """Return a described job for `--json`, with its cost, and without its settings."""
    cost = estimate_of_job(job, region, now=datetime.now(timezone.utc))
    shown = {member: job[member] for member in _MEMBERS if job.get(member) is not None}
    return shown | ({"EstimatedCost": cost.as_data()} if cost else {})
