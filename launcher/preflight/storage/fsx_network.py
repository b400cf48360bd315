"""The network of FSx for Lustre channels: whether the file system is in the job's VPC and zone, and lets the job in.

Lustre uses port 988, and ports 1018-1023 for what servers ask of clients (FSx user guide, limit-access-security-groups). A job
can run without the latter, so only the former is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import CLOSED, closed, described, subnets, vpc_id, zone
from launcher.preflight.storage import channels_of
from launcher.preflight.storage.fsx import described_file_system
from launcher.request.view import Entry

_PORTS = (("security-group-closed", [988]), ("security-group-ports", range(1018, 1024)))
_MOST_INTERFACES = 200  # that one question of EC2 can name


def _ask(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name, vpc = entry.get("FileSystemId"), vpc_id(subject)
    known = described_file_system(subject, entry) if vpc is not None else None
    if known is None or known.get("FileSystemType", "LUSTRE") != "LUSTRE":
        return
    its_vpc = known.get("VpcId")
    if its_vpc not in (vpc, None):
        remedy = f"use subnets of {its_vpc}, unless the two VPCs are connected"
        yield path, "fsx-other-vpc", f"{name} is in {its_vpc}, but the job in {vpc}; {remedy}"
        return
    yield from _is_open(subject, path, known)
    zones = {zone(each) for each in described(subject, "subnets", "subnet-id", known.get("SubnetIds", ()))}
    elsewhere = [each for each in subnets(subject) if zone(each) not in zones]
    if zones and elsewhere:
        shown = joined(f"{each['SubnetId']} ({zone(each)})" for each in elsewhere)
        message = (
            f"{name} is in {joined(sorted(zones))}, but the job may be placed in {shown}: slower, and billed between zones;"
            f" use a subnet such as {known['SubnetIds'][0]}"
        )
        yield path, "fsx-other-zone", message


def _is_open(subject: Subject, path: SpecPath, known: Mapping[str, Any]) -> Iterator[Finding]:
    ids = sorted(known.get("NetworkInterfaceIds", ()))[:_MOST_INTERFACES]
    interfaces = described(subject, "network_interfaces", "network-interface-id", ids)
    its = sorted({group["GroupId"] for interface in interfaces for group in interface.get("Groups", ())})
    addresses = [interface["PrivateIpAddress"] for interface in interfaces if interface.get("PrivateIpAddress")]
    for code, ports in _PORTS if its else ():
        if wrong := closed(subject, f"the file system {known['FileSystemId']}", its, ports, addresses):
            yield path, code, wrong
            return


CHECK = Check(
    "FSx network",
    "Can the job reach the FSx for Lustre file systems from its subnets?",
    _ask,
    channels_of("FSx network"),
    errors={"security-group-closed": CLOSED},
    warnings={
        "fsx-other-vpc": "The file system is in another VPC, which the job reaches only if the two are connected.",
        "fsx-other-zone": "The file system is in another zone: that is slower, and traffic between zones is billed.",
        "security-group-ports": "Lustre servers also use ports 1018-1023, to call their clients.",
    },
)
