"""`launch top NAME`: what a running job's hosts use of CPU, memory, GPU and disk, as CloudWatch has it.

SageMaker publishes CPU, memory, GPU and disk of each host, but not its network
(https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html). The job's own metrics are in the same namespace, with
the dimension TrainingJobName, where the SDK's TrainingJobAnalytics reads them. So one call has both.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from launcher.aws.session import Account
from launcher.commands import options
from launcher.commands.jobs import is_local
from launcher.console import Console, json_text, json_timestamp, print_line, rich_console, timestamp
from launcher.errors import RefusedError
from launcher.jobs.lines import host_names
from launcher.jobs.lookup import describe, tried
from launcher.jobs.outcome import ENDED, Outcome, plain_data

_REFRESH_SECONDS = 15.0  # each with one DescribeTrainingJob and one GetMetricData; values change once a minute
# Percent of a core, of a GPU or of a GPU's memory, added up over all of the host's; of the host's whole memory and disk.
_COLUMNS = {
    "cpu": "CPUUtilization",
    "memory": "MemoryUtilization",
    "gpu": "GPUUtilization",
    "gpu_memory": "GPUMemoryUtilization",
    "disk": "DiskUtilization",
}
_NAMESPACE = "/aws/sagemaker/TrainingJobs"
_MOST_QUERIES = 500  # of a GetMetricData
_LATEST = timedelta(minutes=10)


class _Usage(NamedTuple):
    """The latest values of a job's hosts and metrics; those that CloudWatch does not have are left out."""

    hosts: Mapping[str, Mapping[str, float]]  # by host, then by column
    metrics: Mapping[str, float]
    at: datetime | None  # the minute of the newest value; None if there is none


_Show = Callable[[Outcome, _Usage], None]


@options.command("top", "top digits-1 --once")
@options.job_argument
@options.flag("--once", help="Show the latest values once.")
@options.account_options
@options.json_option
def top(name: str, once: bool, where: options.AccountOptions, as_json: bool) -> None:
    """Show CPU, memory, GPU and disk use of a running job's hosts.

    The latest values of each host of the training job NAME, and of its metrics, are shown until it ends: in place on a terminal,
    else as lines, and with --json as an object per refresh. They are CloudWatch's, one a minute and some minutes late; 100 % is a
    whole core or GPU. SageMaker publishes no values of the network. Ctrl-C leaves the job running.
    """
    if is_local(name, local=False, where=where):
        raise RefusedError(f"{name} is a local run, of which CloudWatch has nothing; use `launch exec {name} -- top`")
    account, console = where.open(), Console(as_json=as_json)
    description: dict[str, Any] = {}
    is_drawn, shown = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not as_json, None
    with _in_place() if is_drawn else nullcontext(_show_json if as_json else _show_lines) as show:
        while True:
            description = tried(console.warn, describe, account, name) or description
            usage = tried(console.warn, _usage_of, account, description) if description else None
            if usage and (is_drawn or as_json or usage.at != shown):
                show(Outcome(description), usage)
                shown = usage.at
            if (once and usage) or description.get("TrainingJobStatus") in ENDED:
                break
            time.sleep(_REFRESH_SECONDS)
    if usage and usage.at is None:
        console.say(
            f"{name}: CloudWatch has no values; they appear some minutes after the training has begun, for 15 days"
        )
    if description["TrainingJobStatus"] in ENDED:
        more = f"`launch status {name}{account.options}` shows how it ended"
        console.say(f"{name}: {description['TrainingJobStatus']}; {more}")


def _usage_of(account: Account, description: Mapping[str, Any]) -> _Usage:
    """Return what the hosts of a described job use now, or used at its end. Raises AwsError."""
    name, hosts = description["TrainingJobName"], host_names(description)
    definitions = description.get("AlgorithmSpecification", {}).get("MetricDefinitions") or ()
    places = [(host, column) for host in hosts for column in _COLUMNS] + [("", each["Name"]) for each in definitions]
    queries = [
        _query(f"m{number}", _COLUMNS[title], "Host", f"{name}/{host}")
        if host
        else _query(f"m{number}", title, "TrainingJobName", name)
        for number, (host, title) in enumerate(places)
    ]
    # Whole minutes, as the period: the same value then has the same time in each answer.
    now = datetime.now(timezone.utc)
    end = (min(now, description.get("TrainingEndTime") or now) + timedelta(minutes=1)).replace(second=0, microsecond=0)
    found: dict[int, tuple[datetime, float]] = {}
    for start in range(0, len(queries), _MOST_QUERIES):
        asked = {
            "MetricDataQueries": queries[start : start + _MOST_QUERIES],
            "StartTime": end - _LATEST,
            "EndTime": end,
        }
        for page in account.pages("cloudwatch", "get_metric_data", ScanBy="TimestampDescending", **asked):
            for each in page["MetricDataResults"]:
                if each["Values"]:  # the newest first, on the first page
                    found.setdefault(int(each["Id"][1:]), (each["Timestamps"][0], each["Values"][0]))
    values = {places[number]: value for number, (_, value) in sorted(found.items())}
    return _Usage(
        {host: {title: value for (of, title), value in values.items() if of == host} for host in hosts},
        {title: value for (of, title), value in values.items() if not of},
        max((at for at, _ in found.values()), default=None),
    )


def _query(identity: str, metric: str, dimension: str, value: str) -> dict[str, Any]:
    where = {"Namespace": _NAMESPACE, "MetricName": metric, "Dimensions": [{"Name": dimension, "Value": value}]}
    return {"Id": identity, "MetricStat": {"Metric": where, "Period": 60, "Stat": "Average"}}


@contextmanager
def _in_place() -> Iterator[_Show]:
    from rich import box
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def show(job: Outcome, usage: _Usage) -> None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for title in ("host", *(f"{column.replace('_', ' ')} %" for column in _COLUMNS)):
            table.add_column(title, justify="right" if table.columns else "left", no_wrap=True)
        for host, values in usage.hosts.items():
            table.add_row(host, *(f"{values[column]:.1f}" if column in values else "-" for column in _COLUMNS))
        about = f"{job.name}: {job.status}, {job.description['SecondaryStatus']}"
        about += f", values of {timestamp(usage.at)}" if usage.at else ", no values yet"
        below = [job.cost.text] if job.cost else []
        below += [f"{metric} = {value:.6g}" for metric, value in usage.metrics.items()]
        live.update(Group(Text(about), table, *map(Text, below)), refresh=True)

    with Live(console=rich_console(sys.stdout), auto_refresh=False) as live:
        yield show


def _show_lines(_: Outcome, usage: _Usage) -> None:
    rows = {host: [f"{name}={value:.1f}%" for name, value in values.items()] for host, values in usage.hosts.items()}
    rows["metrics"] = [f"{metric}={value:.6g}" for metric, value in usage.metrics.items()]
    for what, values in rows.items():
        if values and usage.at:
            print_line(" ".join([timestamp(usage.at), what, *values]))


def _show_json(job: Outcome, usage: _Usage) -> None:
    members = ("TrainingJobName", "TrainingJobStatus", "SecondaryStatus")
    data = {member: job.description[member] for member in members}
    data |= {"timestamp": usage.at and json_timestamp(usage.at), "Hosts": usage.hosts, "Metrics": usage.metrics}
    if job.cost:
        data["EstimatedCost"] = job.cost.as_data()
    print_line(json_text(plain_data(data)))
