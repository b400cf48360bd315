"""Channels on EFS and FSx for Lustre: whether the file system exists, and lets the job in where its machines will be.

A machine mounts EFS through the mount target in its own availability zone, whose security groups must allow port 2049. The card of
a storage kind names the checks that look at its channels (`launcher.spec.channels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from launcher.account.check import Subject, joined
from launcher.account.network import closed, described, known_subnets, vpc_id, zone
from launcher.errors import Problem, SpecPath
from launcher.request.view import Entry
from launcher.spec.channels import KINDS, source_of_entry

_FSX_READY = ("AVAILABLE", "UPDATING", "MISCONFIGURED")
_EFS_READY = ("available", "updating")
_NFS = 2049  # TCP port


def channels_of(check: str) -> Callable[[Subject], Iterator[tuple[SpecPath, Entry]]]:
    """Return the function that yields the channels that a check looks at, each with the path of its `file_system_id`."""
    sources = {source for source, kind in KINDS.items() if check in kind.ACCOUNT_CHECKS}

    def find(subject: Subject) -> Iterator[tuple[SpecPath, Entry]]:
        for entry in subject.draft.entries:
            if source_of_entry(entry.request) in sources and entry.get("FileSystemId"):
                yield entry.path("file_system_id"), entry

    return find


def _described_efs(subject: Subject, name: str) -> dict[str, Any] | None:
    answer = subject.find("efs", "describe_file_systems", FileSystemId=name) or {}
    return next(iter(answer.get("FileSystems", ())), None)


def efs(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Do the EFS file systems exist, and are they available?"""
    name = entry.get("FileSystemId")
    known = _described_efs(subject, name)
    if known is None:
        hint = "; name one of `aws efs describe-file-systems`"
        if subject.try_to_ask("fsx", "describe_file_systems", FileSystemIds=[name]).get("FileSystems"):
            hint = "; it is an FSx file system, so write source: FSxLustre"
        yield Problem(path, f"there is no EFS file system {name} in {subject.account.region}{hint}", "efs-missing")
    elif (state := known.get("LifeCycleState", "available")) not in _EFS_READY:
        wrong = f"{name} is {state!r}, not available; wait until it is, or name another"
        yield Problem(path, wrong, "efs-not-ready")


def efs_mount_targets(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Can the job mount the EFS file systems from its subnets?"""
    name, vpc = entry.get("FileSystemId"), vpc_id(subject)
    answer = subject.find("efs", "describe_mount_targets", FileSystemId=name) if vpc is not None else None
    if answer is None:
        return  # the check `EFS` reports a missing file system
    every = [each for each in answer.get("MountTargets", ()) if each.get("LifeCycleState", "available") in _EFS_READY]
    here = [each for each in every if each.get("VpcId", vpc) == vpc]
    if every and not here:
        others = joined(sorted({each["VpcId"] for each in every}))
        message = f"{name} has mount targets in {others}, but the job is in {vpc}; use subnets of {others}"
        yield Problem(path, message, "efs-other-vpc")
        return
    by_zone = {zone(each): each for each in here}
    targets = {
        target["MountTargetId"]: target for each in known_subnets(subject) if (target := by_zone.get(zone(each)))
    }
    wrong = [found for each in targets.values() if (found := _closed_target(subject, each)) is not None]
    if wrong:
        others = f" (and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        code = "security-group-closed" if len(wrong) == len(targets) else "security-group-closed-in-some"
        yield Problem(path, wrong[0] + others, code)
    lacking = [subnet for subnet in known_subnets(subject) if zone(subnet) not in by_zone]
    if lacking:
        zones = joined(f"{zone(subnet)} ({subnet['SubnetId']})" for subnet in lacking)
        has = "it has none at all;"
        if here:
            has = f"it has some in {joined(sorted(by_zone))}; use a subnet there, or"
        remedy = f"create one: aws efs create-mount-target --file-system-id {name} --subnet-id {lacking[0]['SubnetId']}"
        code = "efs-no-mount-target-in-some" if targets else "efs-no-mount-target"
        yield Problem(path, f"{name} has no mount target in {zones}; {has} {remedy}", code)


def _closed_target(subject: Subject, target: Mapping[str, Any]) -> str | None:
    """Return why the job cannot reach a mount target; None if it can. Raises AwsError."""
    name = target["MountTargetId"]
    its = subject.ask("efs", "describe_mount_target_security_groups", MountTargetId=name).get("SecurityGroups", ())
    return closed(subject, f"the mount target {name} ({zone(target)})", its, _NFS) if its else None


def _described_fsx(subject: Subject, entry: Entry) -> Mapping[str, Any] | None:
    """Return FSx's description; None if there is no such file system. Raises AwsError."""
    answer = subject.find("fsx", "describe_file_systems", FileSystemIds=[entry.get("FileSystemId")])
    return next(iter((answer or {}).get("FileSystems", ())), None)


def fsx(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Do the FSx for Lustre file systems exist, and is each path inside one?"""
    name, known = entry.get("FileSystemId"), _described_fsx(subject, entry)
    if known is None:
        hint = "; name one of `aws fsx describe-file-systems`"
        if subject.try_to_ask("efs", "describe_file_systems", FileSystemId=name).get("FileSystems"):
            hint = "; it is an EFS file system, so write source: EFS"
        yield Problem(path, f"there is no FSx file system {name} in {subject.account.region}{hint}", "fsx-missing")
        return
    kind, state = known.get("FileSystemType", "LUSTRE"), known.get("Lifecycle", "AVAILABLE")
    if kind != "LUSTRE":
        remedy = "but a job mounts only Lustre; name an FSx for Lustre file system"
        yield Problem(path, f"{name} is a {kind} file system, {remedy}", "fsx-not-lustre")
    elif state not in _FSX_READY:
        wrong = f"{name} is {state}, not AVAILABLE; wait until it is, or name another"
        yield Problem(path, wrong, "fsx-not-ready")
    mount, directory = known.get("LustreConfiguration", {}).get("MountName"), str(entry.get("DirectoryPath"))
    first, _, rest = directory.lstrip("/").partition("/")
    if mount and directory.startswith("/") and first != mount:
        whole, inner = (f"/{mount}/{each}".rstrip("/") for each in (directory.strip("/"), rest))
        wrong = f"{directory!r} does not begin with {mount}, the mount name of {name}"
        remedy = f"write {inner!r} if {first!r} was meant as the mount name, else {whole!r}"
        yield Problem(entry.path("directory_path"), f"{wrong}; {remedy}", "fsx-mount-name-wrong")


def fsx_network(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Can the job reach the FSx for Lustre file systems from its subnets?"""
    name, vpc = entry.get("FileSystemId"), vpc_id(subject)
    known = _described_fsx(subject, entry) if vpc is not None else None
    if known is None or known.get("FileSystemType", "LUSTRE") != "LUSTRE":
        return
    its_vpc = known.get("VpcId")
    if its_vpc not in (vpc, None):
        remedy = f"use subnets of {its_vpc}, unless the two VPCs are connected"
        yield Problem(path, f"{name} is in {its_vpc}, but the job in {vpc}; {remedy}", "fsx-other-vpc")
        return
    zones = {zone(each) for each in described(subject, "subnets", "subnet-id", known.get("SubnetIds", ()))}
    elsewhere = [each for each in known_subnets(subject) if zone(each) not in zones]
    if zones and elsewhere:
        shown = joined(f"{each['SubnetId']} ({zone(each)})" for each in elsewhere)
        message = (
            f"{name} is in {joined(sorted(zones))}, but the job may be placed in {shown}: slower, and billed between zones;"
            f" use a subnet such as {known['SubnetIds'][0]}"
        )
        yield Problem(path, message, "fsx-other-zone")
