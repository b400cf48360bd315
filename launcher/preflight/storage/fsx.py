"""FSx for Lustre channels: whether the file system exists, has the path's mount name, and lets the job in, in its VPC and zone.

Lustre uses port 988, and ports 1018-1023 for what servers ask of clients (FSx user guide, limit-access-security-groups). A job
can run without the latter, so only the former is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import closed, described, subnets, vpc_id, zone
from launcher.preflight.storage import channels_of
from launcher.request.view import Entry

_NEAR = 0.75  # similarity of a misspelt mount name: two of eight characters may differ
_READY = ("AVAILABLE", "UPDATING", "MISCONFIGURED")


def _ask_file_system(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name, known = entry.get("FileSystemId"), described_file_system(subject, entry)
    if known is None:
        hint = "; name one of `aws fsx describe-file-systems`"
        if subject.try_to_ask("efs", "describe_file_systems", FileSystemId=name).get("FileSystems"):
            hint = "; it is an EFS file system, so write source: EFS"
        yield path, "fsx-missing", f"there is no FSx file system {name} in {subject.account.region}{hint}"
        return
    kind, state = known.get("FileSystemType", "LUSTRE"), known.get("Lifecycle", "AVAILABLE")
    if kind != "LUSTRE":
        remedy = "but a job mounts only Lustre; name an FSx for Lustre file system"
        yield path, "fsx-not-lustre", f"{name} is a {kind} file system, {remedy}"
    elif state not in _READY:
        yield path, "fsx-not-ready", f"{name} is {state}, not AVAILABLE; wait until it is, or name another"
    yield from _name_fits(entry, known)


def described_file_system(subject: Subject, entry: Entry) -> Mapping[str, Any] | None:
    """Return FSx's description; None if there is no such file system. Raises AwsError."""
    answer = subject.find("fsx", "describe_file_systems", FileSystemIds=[entry.get("FileSystemId")])
    return next(iter((answer or {}).get("FileSystems", ())), None)


def _name_fits(entry: Entry, known: Mapping[str, Any]) -> Iterator[Finding]:
    mount = known.get("LustreConfiguration", {}).get("MountName")
    directory = entry.get("DirectoryPath") or ""
    first, _, rest = directory.lstrip("/").partition("/")
    if not mount or not directory.startswith("/") or first == mount:
        return
    whole, inner = (f"/{mount}/{each}".rstrip("/") for each in (directory.strip("/"), rest))
    remedy = f"write {whole!r}"
    # Misspelt, or `fsx`: the mount name of all SCRATCH_1 file systems and of many examples.
    if first == "fsx" or SequenceMatcher(None, first.casefold(), mount.casefold()).ratio() >= _NEAR:
        remedy = f"write {inner!r}"
    elif re.fullmatch(r"[a-z0-9]{8}", first):
        remedy = f"write {whole!r} if {first!r} is a folder, or {inner!r} if it is another file system's mount name"
    wrong = f"{directory!r} does not begin with {mount}, the mount name of {entry.get('FileSystemId')}"
    yield entry.path("directory_path"), "fsx-mount-name-wrong", f"{wrong}; {remedy}"


CHECK = Check("FSx", _ask_file_system, channels_of("FSx"))


_PORTS = (("security-group-closed", [988]), ("security-group-ports", range(1018, 1024)))
_MOST_INTERFACES = 200  # that one question of EC2 can name


def _ask_network(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
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


NETWORK = Check("FSx network", _ask_network, channels_of("FSx network"))
