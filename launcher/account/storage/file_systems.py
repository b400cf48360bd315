"""Channels on EFS and FSx for Lustre: whether the file system exists, and lets the job in where its machines will be.

A machine mounts EFS through the mount target in its own availability zone, whose security groups must allow port 2049. Lustre uses
port 988, and ports 1018-1023 for what servers ask of clients (FSx user guide, limit-access-security-groups). A job can run without
the latter, so only the former is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.iam.bucket_policies import fits
from launcher.account.iam.permissions import may_name
from launcher.account.iam.role import as_list
from launcher.account.network.vpc import closed, described, subnets, vpc_id, zone
from launcher.account.storage import channels_of
from launcher.errors import SpecPath
from launcher.request.view import Entry

_NEAR = 0.75  # similarity of a misspelt mount name: two of eight characters may differ
_FSX_READY = ("AVAILABLE", "UPDATING", "MISCONFIGURED")


def _ask_fsx(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
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
    elif state not in _FSX_READY:
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


FSX = Check("FSx", _ask_fsx, channels_of("FSx"))


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


FSX_NETWORK = Check("FSx network", _ask_network, channels_of("FSx network"))


_LIKE_S3_FILES = re.compile(r"fs-[0-9a-f]{17,}")
_EFS_READY = ("available", "updating")


def _ask_efs(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name = entry.get("FileSystemId")
    known = (subject.find("efs", "describe_file_systems", FileSystemId=name) or {}).get("FileSystems")
    if not known:
        hint = "; name one of `aws efs describe-file-systems`"
        if subject.try_to_ask("fsx", "describe_file_systems", FileSystemIds=[name]).get("FileSystems"):
            hint = "; it is an FSx file system, so write source: FSxLustre"
        elif _LIKE_S3_FILES.fullmatch(name):
            hint += (
                ". If it belongs to S3 Files, whose IDs look the same, read the bucket: training jobs cannot mount it"
            )
        yield path, "efs-missing", f"there is no EFS file system {name} in {subject.account.region}{hint}"
    elif (state := known[0].get("LifeCycleState", "available")) not in _EFS_READY:
        yield path, "efs-not-ready", f"{name} is {state!r}, not available; wait until it is, or name another"


EFS = Check("EFS", _ask_efs, channels_of("EFS"))


_NFS = 2049


def _ask_mount_targets(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name, vpc = entry.get("FileSystemId"), vpc_id(subject)
    answer = subject.find("efs", "describe_mount_targets", FileSystemId=name) if vpc is not None else None
    if answer is None:
        return  # the check `EFS` reports a missing file system
    every = [each for each in answer.get("MountTargets", ()) if each.get("LifeCycleState", "available") in _EFS_READY]
    here = [each for each in every if each.get("VpcId", vpc) == vpc]
    if every and not here:
        others = joined(sorted({each["VpcId"] for each in every}))
        message = f"{name} has mount targets in {others}, but the job is in {vpc}; use subnets of {others}"
        yield path, "efs-other-vpc", message
        return
    by_zone = {zone(each): each for each in here} | {str(each.get("AvailabilityZoneName")): each for each in here}
    by_subnet = [
        (each, by_zone.get(zone(each)) or by_zone.get(str(each.get("AvailabilityZone")))) for each in subnets(subject)
    ]
    targets = list({each["MountTargetId"]: each for _, each in by_subnet if each is not None}.values())
    wrong = [found for each in targets if (found := _closed_target(subject, each)) is not None]
    if wrong:
        others = f" (and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        code = "security-group-closed" if len(wrong) == len(targets) else "security-group-closed-in-some"
        yield path, code, wrong[0] + others
    lacking = [subnet for subnet, target in by_subnet if target is None]
    if lacking:
        zones = joined(f"{zone(subnet)} ({subnet['SubnetId']})" for subnet in lacking)
        has = "it has none at all;"
        if here:
            has = f"it has some in {joined(sorted(zone(each) for each in here))}; use a subnet there, or"
        remedy = f"create one: aws efs create-mount-target --file-system-id {name} --subnet-id {lacking[0]['SubnetId']}"
        code = "efs-no-mount-target-in-some" if targets else "efs-no-mount-target"
        yield path, code, f"{name} has no mount target in {zones}; {has} {remedy}"


def _closed_target(subject: Subject, target: Mapping[str, Any]) -> str | None:
    """Return why the job cannot reach a mount target; None if it can. Raises AwsError."""
    name = target["MountTargetId"]
    its = subject.ask("efs", "describe_mount_target_security_groups", MountTargetId=name).get("SecurityGroups", ())
    addresses = [target["IpAddress"]] if target.get("IpAddress") else []
    return closed(subject, f"the mount target {name} ({zone(target)})", its, [_NFS], addresses) if its else None


EFS_MOUNT_TARGETS = Check("EFS mount targets", _ask_mount_targets, channels_of("EFS mount targets"))


def _ask_policy(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    """Look for statements of a file system's policy that keep out a job, whose request can name no access point."""
    name, role = entry.get("FileSystemId"), str(subject.draft.get("RoleArn")).rpartition("/")[2]
    if not (subject.find("efs", "describe_file_systems", FileSystemId=name) or {}).get("FileSystems"):
        return  # the check `EFS` reports a missing file system
    answer = subject.find("efs", "describe_file_system_policy", FileSystemId=name)
    statements = as_list(json.loads(answer["Policy"]).get("Statement")) if answer else []
    if not statements:
        return  # anyone who reaches a mount target may mount it
    needed = ["ClientMount", "ClientWrite"] if entry.get("FileSystemAccessMode") == "rw" else ["ClientMount"]
    for action in (f"elasticfilesystem:{each}" for each in needed):
        fitting = [each for each in statements if fits((as_list(each.get("Action")), []), action.lower(), fold=True)]
        if not may_name({"Statement": fitting}, role):
            wrong = f"the policy of {name} allows {action} neither to the role {role!r} nor to everyone"
            yield path, "efs-policy-closed", f"{wrong}, so mounting it will probably fail; allow it there"
            return


EFS_POLICY = Check("EFS policies", _ask_policy, channels_of("EFS"))
