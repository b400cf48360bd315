"""Channels on EFS and FSx for Lustre: whether the file system exists, and lets the job in where its machines will be.

A machine mounts EFS through the mount target in its own availability zone, whose security groups must allow port 2049. The card of
a storage kind names the checks that look at its channels (`launcher.spec.channels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from launcher.account.check import Subject
from launcher.account.vpc import closed, described, known_subnets, vpc_id, zone
from launcher.errors import Problem, SpecPath, first_names
from launcher.request.view import Entry
from launcher.spec.channels import KINDS, source_of_entry

_READY = ("available", "updating")  # states of mount targets
_NFS = 2049  # TCP port


def channels_of(check: str) -> Callable[[Subject], Iterator[tuple[SpecPath, Entry]]]:
    """Return the function that yields the channels that a check looks at, each with the path of its `file_system_id`."""
    sources = {source for source, kind in KINDS.items() if check in kind.ACCOUNT_CHECKS}

    def find(subject: Subject) -> Iterator[tuple[SpecPath, Entry]]:
        for entry in subject.draft.entries:
            if source_of_entry(entry.request) in sources and entry.get("FileSystemId"):
                yield entry.path("file_system_id"), entry

    return find


def _described(subject: Subject, entry: Entry, name: str, **named: Any) -> Mapping[str, Any] | Problem:
    """Return a service's description of a channel's file system, or the problem that there is none. Raises AwsError."""
    service = name.lower()
    answer = subject.find(service, "describe_file_systems", **named) or {}
    missing = (
        f"there is no {name} file system {entry.get('FileSystemId')} in {subject.account.region}; name one of"
        f" `aws {service} describe-file-systems`, or correct the channel's source"
    )
    found: Iterable[Mapping[str, Any]] = answer.get("FileSystems", ())
    return next(iter(found), Problem(entry.path("file_system_id"), missing, f"{service}-missing"))


def efs(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Do the EFS file systems exist, and can the job mount them from its subnets?"""
    name = entry.get("FileSystemId")
    known = _described(subject, entry, "EFS", FileSystemId=name)
    if isinstance(known, Problem):
        yield known
        return
    if (vpc := vpc_id(subject)) is None:
        return
    answer = subject.ask("efs", "describe_mount_targets", FileSystemId=name)
    every = [each for each in answer.get("MountTargets", ()) if each.get("LifeCycleState", "available") in _READY]
    here = [each for each in every if each.get("VpcId", vpc) == vpc]
    if every and not here:
        others = first_names(sorted({each["VpcId"] for each in every}))
        message = f"{name} has mount targets in {others}, but the job is in {vpc}; use subnets of {others}"
        yield Problem(path, message, "efs-other-vpc")
        return
    by_zone = {zone(each): each for each in here}
    subnets = known_subnets(subject)
    targets = {target["MountTargetId"]: target for each in subnets if (target := by_zone.get(zone(each)))}
    wrong = [found for each in targets.values() if (found := _closed_target(subject, each)) is not None]
    if wrong:
        others = f" (and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        code = "security-group-closed" if len(wrong) == len(targets) else "security-group-closed-in-some"
        yield Problem(path, wrong[0] + others, code)
    if lacking := [subnet for subnet in subnets if zone(subnet) not in by_zone]:
        zones = first_names(f"{zone(subnet)} ({subnet['SubnetId']})" for subnet in lacking)
        has = (
            f"it has some in {first_names(sorted(by_zone))}; use a subnet there, or" if here else "it has none at all;"
        )
        remedy = f"create one: aws efs create-mount-target --file-system-id {name} --subnet-id {lacking[0]['SubnetId']}"
        code = "efs-no-mount-target-in-some" if targets else "efs-no-mount-target"
        yield Problem(path, f"{name} has no mount target in {zones}; {has} {remedy}", code)


def _closed_target(subject: Subject, target: Mapping[str, Any]) -> str | None:
    """Return why the job cannot reach a mount target; None if it can. Raises AwsError."""
    name = target["MountTargetId"]
    its = subject.ask("efs", "describe_mount_target_security_groups", MountTargetId=name).get("SecurityGroups", ())
    return closed(subject, f"the mount target {name} ({zone(target)})", its, _NFS) if its else None


def fsx(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Problem]:
    """Do the FSx for Lustre file systems exist, is each path inside one, and can the job reach them?"""
    name = entry.get("FileSystemId")
    known = _described(subject, entry, "FSx", FileSystemIds=[name])
    if isinstance(known, Problem):
        yield known
        return
    if (kind := known.get("FileSystemType", "LUSTRE")) != "LUSTRE":
        remedy = "but a job mounts only Lustre; name an FSx for Lustre file system"
        yield Problem(path, f"{name} is a {kind} file system, {remedy}", "fsx-not-lustre")
        return
    mount, directory = known.get("LustreConfiguration", {}).get("MountName"), str(entry.get("DirectoryPath"))
    first, _, rest = directory.lstrip("/").partition("/")
    if mount and directory.startswith("/") and first != mount:
        whole, inner = (f"/{mount}/{each}".rstrip("/") for each in (directory.strip("/"), rest))
        wrong = f"{directory!r} does not begin with {mount}, the mount name of {name}"
        remedy = f"write {inner!r} if {first!r} was meant as the mount name, else {whole!r}"
        yield Problem(entry.path("directory_path"), f"{wrong}; {remedy}", "fsx-mount-name-wrong")
    vpc, its_vpc = vpc_id(subject), known.get("VpcId")
    if vpc is not None and its_vpc not in (vpc, None):
        remedy = f"use subnets of {its_vpc}, unless the two VPCs are connected"
        yield Problem(path, f"{name} is in {its_vpc}, but the job in {vpc}; {remedy}", "fsx-other-vpc")
        return
    zones = {zone(each) for each in described(subject, "subnets", "subnet-id", known.get("SubnetIds", ()))}
    elsewhere = [each for each in known_subnets(subject) if zone(each) not in zones]
    if vpc is not None and zones and elsewhere:
        shown = first_names(f"{each['SubnetId']} ({zone(each)})" for each in elsewhere)
        message = (
            f"{name} is in {first_names(sorted(zones))}, but the job may be placed in {shown}: slower, and billed between zones;"
            f" use a subnet such as {known['SubnetIds'][0]}"
        )
        yield Problem(path, message, "fsx-other-zone")
