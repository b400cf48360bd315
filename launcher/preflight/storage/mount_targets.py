"""Mount targets of EFS channels: whether the file system can be mounted where the job's machines will be.

A machine mounts EFS through the mount target in its own availability zone, whose security groups must allow port 2049.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import CLOSED, closed, subnets, vpc_id, zone
from launcher.preflight.storage import file_system_channels
from launcher.preflight.storage.efs import READY
from launcher.request.view import Entry

_NFS = 2049


def subnets_have_mount_targets(subject: Subject) -> Iterator[Finding]:
    """Look for mount targets in the zones of the job's subnets, in its VPC, that let the job in."""
    yield from subject.each(
        file_system_channels(subject, "EFS mount targets"), lambda path, entry: _targets(subject, path, entry)
    )


def _targets(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name, vpc = entry.get("FileSystemId"), vpc_id(subject)
    if vpc is None:
        return
    try:
        answer = subject.ask("efs", "describe_mount_targets", FileSystemId=name)
    except AwsError as error:
        if error.code == "FileSystemNotFound":
            return  # reported by `EFS`
        raise
    every = [each for each in answer.get("MountTargets", ()) if each.get("LifeCycleState", "available") in READY]
    here = [each for each in every if each.get("VpcId", vpc) == vpc]
    if every and not here:
        others = joined(sorted({each["VpcId"] for each in every}))
        yield (
            path,
            "efs-other-vpc",
            f"{name} has mount targets in {others}, but the job is in {vpc}; use subnets of {others}",
        )
        return
    by_zone = {zone(each): each for each in here} | {str(each.get("AvailabilityZoneName")): each for each in here}
    by_subnet = [
        (each, by_zone.get(zone(each)) or by_zone.get(str(each.get("AvailabilityZone")))) for each in subnets(subject)
    ]
    targets = list({each["MountTargetId"]: each for _, each in by_subnet if each is not None}.values())
    wrong = [found for each in targets if (found := _closed(subject, each)) is not None]
    if wrong:
        code = "security-group-closed" if len(wrong) == len(targets) else "security-group-closed-in-some"
        others = f" (and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        yield path, code, wrong[0] + others
    lacking = [subnet for subnet, target in by_subnet if target is None]
    if lacking:
        yield path, *_no_target(name, lacking, here, everywhere=not targets)


def _no_target(
    name: str, lacking: list[Mapping[str, Any]], here: list[Mapping[str, Any]], *, everywhere: bool
) -> tuple[str, str]:
    zones = joined(f"{zone(subnet)} ({subnet['SubnetId']})" for subnet in lacking)
    has = (
        f"it has some in {joined(sorted(zone(each) for each in here))}; use a subnet there, or"
        if here
        else "it has none at all;"
    )
    remedy = f"create one: aws efs create-mount-target --file-system-id {name} --subnet-id {lacking[0]['SubnetId']}"
    code = "efs-no-mount-target" if everywhere else "efs-no-mount-target-in-some"
    return code, f"{name} has no mount target in {zones}; {has} {remedy}"


def _closed(subject: Subject, target: Mapping[str, Any]) -> str | None:
    """Return why the job cannot reach a mount target; None if it can. Raises AwsError."""
    name = target["MountTargetId"]
    its = subject.ask("efs", "describe_mount_target_security_groups", MountTargetId=name).get("SecurityGroups", ())
    addresses = [target["IpAddress"]] if target.get("IpAddress") else []
    return closed(subject, f"the mount target {name} ({zone(target)})", its, [_NFS], addresses) if its else None


CHECK = Check(
    "EFS mount targets",
    "Can the job mount the EFS file systems from its subnets?",
    subnets_have_mount_targets,
    {
        "efs-other-vpc": ("error", "The file system's mount targets are in another VPC than the job."),
        "efs-no-mount-target": ("error", "No zone of the job's subnets has a mount target of the file system."),
        "efs-no-mount-target-in-some": ("warning", "A zone in which the job may be placed has no mount target."),
        "security-group-closed": CLOSED,
        "security-group-closed-in-some": (
            "warning",
            "Security groups block traffic in one of the zones in which the job may be placed.",
        ),
    },
)
