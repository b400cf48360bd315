"""The network of FSx for Lustre channels: whether the file system is in the job's VPC and zone, and lets the job in.

Lustre uses port 988, and ports 1018-1023 for what servers ask of clients (FSx user guide, limit-access-security-groups). A job
can run without the latter, so only the former is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import CLOSED, closed, described_subnets, subnets, vpc_id, zone
from launcher.preflight.storage import file_system_channels
from launcher.preflight.storage.fsx import described_file_system
from launcher.request.view import Entry

_LUSTRE = 988
_CALLBACKS = range(1018, 1024)


def file_systems_are_reached(subject: Subject) -> Iterator[Finding]:
    """Look at VPC, zone and security groups of each file system."""
    yield from subject.each(
        file_system_channels(subject, "FSx network"), lambda path, entry: _is_reached(subject, path, entry)
    )


def _is_reached(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name, vpc = entry.get("FileSystemId"), vpc_id(subject)
    known = described_file_system(subject, entry) if vpc is not None else None
    if known is None or known.get("FileSystemType", "LUSTRE") != "LUSTRE":
        return
    its_vpc = known.get("VpcId")
    if its_vpc not in (vpc, None):
        yield (
            path,
            "fsx-other-vpc",
            f"{name} is in {its_vpc}, but the job in {vpc}; use subnets of {its_vpc}, unless the two VPCs are connected",
        )
        return
    yield from _is_open(subject, path, known)
    zones = {zone(each) for each in described_subnets(subject, known.get("SubnetIds", ()))}
    elsewhere = [each for each in subnets(subject) if zone(each) not in zones]
    if zones and elsewhere:
        shown = joined(f"{each['SubnetId']} ({zone(each)})" for each in elsewhere)
        yield (
            path,
            "fsx-other-zone",
            f"{name} is in {joined(sorted(zones))}, but the job may be placed in {shown}: slower, and billed between zones;"
            f" use a subnet such as {known['SubnetIds'][0]}",
        )


def _is_open(subject: Subject, path: SpecPath, known: Mapping[str, Any]) -> Iterator[Finding]:
    ids = sorted(known.get("NetworkInterfaceIds", ()))
    if not ids:
        return
    filters = [{"Name": "network-interface-id", "Values": ids[:200]}]
    interfaces = subject.ask("ec2", "describe_network_interfaces", Filters=filters).get("NetworkInterfaces", ())
    its = sorted({group["GroupId"] for interface in interfaces for group in interface.get("Groups", ())})
    if not its:
        return
    addresses = [interface["PrivateIpAddress"] for interface in interfaces if interface.get("PrivateIpAddress")]
    what = f"the file system {known['FileSystemId']}"
    for code, ports in (("security-group-closed", [_LUSTRE]), ("security-group-ports", list(_CALLBACKS))):
        wrong = closed(subject, what, its, ports, addresses)
        if wrong:
            yield path, code, wrong
            return


CHECK = Check(
    "FSx network",
    "Can the job reach the FSx for Lustre file systems from its subnets?",
    file_systems_are_reached,
    {
        "fsx-other-vpc": (
            "warning",
            "The file system is in another VPC, which the job reaches only if the two are connected.",
        ),
        "fsx-other-zone": (
            "warning",
            "The file system is in another zone: that is slower, and traffic between zones is billed.",
        ),
        "security-group-closed": CLOSED,
        "security-group-ports": (
            "warning",
            "Lustre servers also use ports 1018-1023, to call their clients.",
        ),
    },
)
