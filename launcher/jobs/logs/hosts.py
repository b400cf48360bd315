"""A job's hosts, and a reader for the lines of the selected ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.aws.account import Account
from launcher.errors import RefusedError, did_you_mean
from launcher.jobs.logs.lines import JobLogs
from launcher.jobs.logs.streams import Selection


def hosts_of(description: Mapping[str, Any]) -> list[str]:
    """Return `["algo-1", "algo-2"]`; empty if the description has no number of hosts."""
    resources = description.get("ResourceConfig") or {}
    groups = resources.get("InstanceGroups") or ()
    count = sum(group["InstanceCount"] for group in groups) or resources.get("InstanceCount", 0)
    return [f"algo-{number}" for number in range(1, count + 1)]


def reader_of(account: Account, description: Mapping[str, Any], selection: Selection, settling: float) -> JobLogs:
    """Return a reader of the job's lines. Raises RefusedError if the job has no such host as selected."""
    hosts, name = hosts_of(description), description["TrainingJobName"]
    check_host(selection.host, hosts, name)
    return JobLogs(account, name, selection, hosts=len(hosts) or 1, settling=settling)


def check_host(host: str | None, hosts: list[str], name: str) -> None:
    """Raise RefusedError if `host` is not one of `hosts`."""
    if host and hosts and host not in hosts:
        has = hosts[0] if len(hosts) == 1 else f"{hosts[0]} to {hosts[-1]}"
        raise RefusedError(f"--host {host}: {name} has {has}{did_you_mean(host, hosts)}")
