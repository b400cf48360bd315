"""What a job's hosts use of their instances, as CloudWatch has it: a value per minute, some minutes late.

SageMaker publishes CPU, memory, GPU and disk of each host, but not its network
(https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html). The job's own metrics are in the same namespace, with
the dimension TrainingJobName, where the SDK's TrainingJobAnalytics reads them. So one call has both, and BatchGetMetrics, which
has only the latter, is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from launcher.aws.account import Account
from launcher.jobs.lines import hosts_of

# Percent of a core, of a GPU or of a GPU's memory, added up over all of the host's; of the host's whole memory and disk.
COLUMNS = {
    "cpu": "CPUUtilization",
    "memory": "MemoryUtilization",
    "gpu": "GPUUtilization",
    "gpu_memory": "GPUMemoryUtilization",
    "disk": "DiskUtilization",
}
_NAMESPACE = "/aws/sagemaker/TrainingJobs"
_MOST_QUERIES = 500  # of a GetMetricData
_LATEST = timedelta(minutes=10)


class Usage(NamedTuple):
    """The latest values of a job's hosts and metrics; those that CloudWatch does not have are left out."""

    hosts: Mapping[str, Mapping[str, float]]  # by host, then by column
    metrics: Mapping[str, float]
    at: datetime | None  # the minute of the newest value; None if there is none


def usage_of(account: Account, description: Mapping[str, Any], now: datetime) -> Usage:
    """Return what the hosts of a described job use now, or used at its end. Raises AwsError."""
    name, hosts = description["TrainingJobName"], hosts_of(description)
    definitions = description.get("AlgorithmSpecification", {}).get("MetricDefinitions") or ()
    places = [(host, column) for host in hosts for column in COLUMNS] + [("", each["Name"]) for each in definitions]
    queries = [
        _query(f"m{number}", COLUMNS[title], "Host", f"{name}/{host}")
        if host
        else _query(f"m{number}", title, "TrainingJobName", name)
        for number, (host, title) in enumerate(places)
    ]
    # Whole minutes, as the period: the same value then has the same time in each answer.
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
    return Usage(
        {host: {title: value for (of, title), value in values.items() if of == host} for host in hosts},
        {title: value for (of, title), value in values.items() if not of},
        max((at for at, _ in found.values()), default=None),
    )


def _query(identity: str, metric: str, dimension: str, value: str) -> dict[str, Any]:
    where = {"Namespace": _NAMESPACE, "MetricName": metric, "Dimensions": [{"Name": dimension, "Value": value}]}
    return {"Id": identity, "MetricStat": {"Metric": where, "Period": 60, "Stat": "Average"}}
