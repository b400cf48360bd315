"""EFS and FSx file systems that the job cannot mount."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from account_data import Broken
from account_world import FAST, SHARED, World, nothing


def an_efs(*letters: str) -> Callable[[World], dict[str, str]]:
    return lambda world: {"efs": world.file_system(*(world.ids[f"subnet_{letter}"] for letter in letters))}


def an_efs_of_another_vpc(world: World) -> dict[str, str]:
    vpc, _ = world.vpc()
    return {"other_vpc": vpc, "efs": world.file_system(world.subnet("a", vpc), group=world.group(vpc))}


def a_closed_efs(world: World) -> dict[str, str]:
    group = world.group()
    world.let_in(group, 2048, from_group=world.ids["job_group"])
    world.let_in(group, 2049, from_cidr="10.1.0.0/16")
    return {"closed": group, "efs": world.file_system(world.ids["subnet_a"], world.ids["subnet_b"], group=group)}


def an_efs_closed_in_b(world: World) -> dict[str, str]:
    closed, efs = world.group(), world.file_system(world.ids["subnet_a"])
    world.efs.create_mount_target(FileSystemId=efs, SubnetId=world.ids["subnet_b"], SecurityGroups=[closed])
    return {"closed": closed, "efs": efs}


def an_fsx(**members: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"fsx": world.fsx(**members)}


def an_fsx_in_one_zone(world: World) -> dict[str, str]:
    return {"fsx": world.fsx(SubnetIds=[world.ids["subnet_a"]])}


BROKEN = {
    "a missing EFS": Broken(
        nothing,
        SHARED % "fs-0123456789abcdef0",
        [("efs-missing", "channels.shared.file_system_id")],
        ("fs-0123456789abcdef0", "aws efs describe-file-systems", "correct the channel's source"),
    ),
    "an EFS without mount targets": Broken(
        an_efs(),
        SHARED % "{efs}",
        [("efs-no-mount-target", "channels.shared.file_system_id")],
        ("none at all", "--file-system-id {efs} --subnet-id {subnet_a}"),
    ),
    "an EFS in one zone of two": Broken(
        an_efs("a"),
        SHARED % "{efs}",
        [("efs-no-mount-target-in-some", "channels.shared.file_system_id")],
        ("{subnet_b}", "it has some in use1-az"),
    ),
    "an EFS in another VPC": Broken(
        an_efs_of_another_vpc,
        SHARED % "{efs}",
        [("efs-other-vpc", "channels.shared.file_system_id")],
        ("{other_vpc}", "the job is in {vpc}"),
    ),
    "an EFS that lets no one in": Broken(
        a_closed_efs,
        SHARED % "{efs}",
        [("security-group-closed", "channels.shared.file_system_id")],
        ("inbound rule to {closed}: TCP 2049 from {job_group}", "and 1 more"),
    ),
    "an EFS that lets in only from one zone": Broken(
        an_efs_closed_in_b,
        SHARED % "{efs}",
        [("security-group-closed-in-some", "channels.shared.file_system_id")],
        ("inbound rule to {closed}: TCP 2049 from {job_group}",),
    ),
    "a missing FSx": Broken(
        nothing,
        FAST % ("fs-0123456789abcdef0", "/fsx1abcd/images"),
        [("fsx-missing", "channels.fast.file_system_id")],
        ("fs-0123456789abcdef0",),
    ),
    "an FSx for Windows": Broken(
        an_fsx(FileSystemType="WINDOWS"),
        FAST % ("{fsx}", "/fsx1abcd/images"),
        [("fsx-not-lustre", "channels.fast.file_system_id")],
        ("WINDOWS",),
    ),
    "an FSx that is still being created": Broken(
        an_fsx(Lifecycle="CREATING"),
        FAST % ("{fsx}", "/fsx1abcd/images"),
        [("fsx-not-available", "channels.fast.file_system_id")],
        ("is CREATING", "wait until it is AVAILABLE"),
    ),
    "an FSx that has failed": Broken(
        an_fsx(Lifecycle="FAILED"),
        FAST % ("{fsx}", "/fsx1abcd/images"),
        [("fsx-not-available", "channels.fast.file_system_id")],
        ("is FAILED", "name another file system"),
    ),
    "an FSx of another mount name": Broken(
        an_fsx(),
        FAST % ("{fsx}", "/fsx/images"),
        [("fsx-mount-name-wrong", "channels.fast.directory_path")],
        ("write '/fsx1abcd/images' if 'fsx' was meant as the mount name",),
    ),
    "an FSx with a folder that may be a mount name": Broken(
        an_fsx(),
        FAST % ("{fsx}", "/datasets/images"),
        [("fsx-mount-name-wrong", "channels.fast.directory_path")],
        ("'/fsx1abcd/images' if 'datasets' was meant as the mount name, else '/fsx1abcd/datasets/images'",),
    ),
    "an FSx in another VPC": Broken(
        an_fsx(VpcId="vpc-0aaaaaaaaaaaaaaaa"),
        FAST % ("{fsx}", "/fsx1abcd"),
        [("fsx-other-vpc", "channels.fast.file_system_id")],
        ("vpc-0aaaaaaaaaaaaaaaa", "{vpc}"),
    ),
    "an FSx in another zone": Broken(
        an_fsx_in_one_zone,
        FAST % ("{fsx}", "/fsx1abcd"),
        [("fsx-other-zone", "channels.fast.file_system_id")],
        ("{subnet_b}", "use a subnet such as {subnet_a}"),
    ),
}
