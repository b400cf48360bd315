"""EFS channels: whether the file system exists and is available, and can be mounted where the job's machines will be.

A machine mounts EFS through the mount target in its own availability zone, whose security groups must allow port 2049.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import closed, subnets, vpc_id, zone
from launcher.preflight.storage import channels_of
from launcher.request.view import Entry

_LIKE_S3_FILES = re.compile(r"fs-[0-9a-f]{17,}")
READY = ("available", "updating")


def _ask_file_system(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
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
    elif (state := known[0].get("LifeCycleState", "available")) not in READY:
        yield path, "efs-not-ready", f"{name} is {state!r}, not available; wait until it is, or name another"


CHECK = Check("EFS", _ask_file_system, channels_of("EFS"))


_NFS = 2049


def _ask_mount_targets(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name, vpc = entry.get("FileSystemId"), vpc_id(subject)
    answer = subject.find("efs", "describe_mount_targets", FileSystemId=name) if vpc is not None else None
    if answer is None:
        return  # the check `EFS` reports a missing file system
    every = [each for each in answer.get("MountTargets", ()) if each.get("LifeCycleState", "available") in READY]
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
    wrong = [found for each in targets if (found := _closed(subject, each)) is not None]
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


def _closed(subject: Subject, target: Mapping[str, Any]) -> str | None:
    """Return why the job cannot reach a mount target; None if it can. Raises AwsError."""
    name = target["MountTargetId"]
    its = subject.ask("efs", "describe_mount_target_security_groups", MountTargetId=name).get("SecurityGroups", ())
    addresses = [target["IpAddress"]] if target.get("IpAddress") else []
    return closed(subject, f"the mount target {name} ({zone(target)})", its, [_NFS], addresses) if its else None


MOUNT_TARGETS = Check("EFS mount targets", _ask_mount_targets, channels_of("EFS mount targets"))
