"""The hosts of a run, and the content of SageMaker's three configuration files for each. Pure."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrypoints import contract
from launcher.request.view import groups_of, s3_source


@dataclass(frozen=True)
class Host:
    """One machine of the job."""

    name: str  # algo-1, algo-2, ...
    group: str
    instance_type: str


def hosts_of(request: Mapping[str, Any], instance_count: int | None = None) -> tuple[Host, ...]:
    """Return the request's hosts; `instance_count` replaces their number, in each group if there are groups."""
    resources = request.get("ResourceConfig", {})
    groups = resources.get("InstanceGroups") or [
        {
            "InstanceGroupName": contract.HOMOGENEOUS_GROUP,
            "InstanceType": resources.get("InstanceType", "local"),
            "InstanceCount": resources.get("InstanceCount", 1),
        }
    ]
    hosts: list[Host] = []
    for group in groups:
        for _ in range(instance_count or group["InstanceCount"]):
            hosts.append(Host(f"algo-{len(hosts) + 1}", group["InstanceGroupName"], group["InstanceType"]))
    return tuple(hosts)


def entries_of(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the InputDataConfig entries, each with its mode filled in from the job's."""
    default = request.get("AlgorithmSpecification", {}).get("TrainingInputMode", "File")
    return [{"InputMode": default, **entry} for entry in request.get("InputDataConfig", ())]


def channels_of(request: Mapping[str, Any], host: Host) -> list[dict[str, Any]]:
    """Return the InputDataConfig entries that this host gets, each with its mode filled in from the job's."""
    return [entry for entry in entries_of(request) if host.group in (groups_of(entry) or [host.group])]


def sharing(entry: Mapping[str, Any], hosts: tuple[Host, ...]) -> tuple[str, ...]:
    """Return the names of the hosts that share a channel: all, or those of its instance groups."""
    groups = groups_of(entry)
    return tuple(host.name for host in hosts if not groups or host.group in groups)


def config_files(request: Mapping[str, Any], host: Host, hosts: tuple[Host, ...]) -> dict[str, Any]:
    """Return the files below input/config, name -> content, as SageMaker writes them."""
    return {
        contract.HYPERPARAMETERS_FILE: dict(request.get("HyperParameters", {})),
        contract.INPUT_DATA_CONFIG_FILE: {
            entry["ChannelName"]: _channel_config(entry) for entry in channels_of(request, host)
        },
        contract.RESOURCE_CONFIG_FILE: {
            "current_group_name": host.group,
            "current_host": host.name,
            "current_instance_type": host.instance_type,
            # SageMaker sorts these as text: of 12 hosts, algo-2 is the fourth.
            "hosts": sorted(each.name for each in hosts),
            "instance_groups": _instance_groups(hosts),
            "network_interface_name": loopback_interface(),
            "topology": None,
        },
    }


def _channel_config(entry: Mapping[str, Any]) -> dict[str, str]:
    config = {
        "TrainingInputMode": entry["InputMode"],
        "S3DistributionType": s3_source(entry).get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": entry.get("RecordWrapperType", "None"),
    }
    if "ContentType" in entry:
        config["ContentType"] = entry["ContentType"]
    return config


def _instance_groups(hosts: tuple[Host, ...]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for host in hosts:
        new = {"hosts": [], "instance_group_name": host.group, "instance_type": host.instance_type}
        groups.setdefault(host.group, new)["hosts"].append(host.name)
    return [{**group, "hosts": sorted(group["hosts"])} for group in groups.values()]


def loopback_interface() -> str:
    """Return the name of the network interface that the hosts share: `lo`, or `lo0` on macOS."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), names[0] if names else "lo")
