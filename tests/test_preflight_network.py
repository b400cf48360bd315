"""What preflight asks of networks and file systems: what is broken is found; and what is only unusual is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aws_stand_in
from preflight_world import (
    FAST,
    IN_GROUP,
    MACHINES,
    NETWORK,
    SHARED,
    Broken,
    World,
    a_rule,
    a_world,
    judge,
    nothing,
)


@pytest.fixture(scope="module")
def made(running_aws: aws_stand_in.StandIn) -> Iterator[World]:
    with a_world(running_aws) as world:
        yield world


@pytest.fixture
def world(made: World) -> Iterator[World]:
    made.aws.clear_calls()
    yield made
    made.aws.clear_faults()


def a_vpc(
    *, route: Callable[[World, str, str], None] | None = None, size: int = 24
) -> Callable[[World], dict[str, str]]:
    """A VPC of its own, in which all else is right."""

    def make(world: World) -> dict[str, str]:
        vpc, table = world.vpc()
        if route is None:
            world.endpoint(vpc, table)
        else:
            route(world, vpc, table)
        group = world.group(vpc)
        world.let_in(group, from_group=group)
        subnet_a, subnet_b = (world.subnet(letter, vpc, size) for letter in "ab")
        return {"vpc": vpc, "table": table, "job_group": group, "subnet_a": subnet_a, "subnet_b": subnet_b}

    return make


def no_route(world: World, vpc: str, table: str) -> None:
    world.endpoint(vpc, table, "dynamodb")


def an_internet_gateway(world: World, vpc: str, table: str) -> None:
    gateway = world.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    world.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    world.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)


def another_table_for_b(world: World) -> dict[str, str]:
    ids = a_vpc()(world)
    table = world.ec2.create_route_table(VpcId=ids["vpc"])["RouteTable"]["RouteTableId"]
    world.ec2.associate_route_table(RouteTableId=table, SubnetId=ids["subnet_b"])
    return ids | {"table": table}


def another_vpc(world: World) -> dict[str, str]:
    vpc, _ = world.vpc()
    return {"other_vpc": vpc, "subnet_b": world.subnet("b", vpc)}


def a_group_of_another_vpc(world: World) -> dict[str, str]:
    vpc, _ = world.vpc()
    world.aws.refuse("ec2:DescribeSecurityGroupVpcAssociations", "UnauthorizedOperation", "no")
    return {"other_vpc": vpc, "other_group": world.group(vpc)}


def a_group(*, outbound: bool = True, ports: tuple[int, ...] = (-1,)) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        group = world.group(outbound=outbound)
        for port in ports:
            world.let_in(group, port, from_group=group)
        return {"job_group": group}

    return make


def a_group_out_to_the_vpc_only(world: World) -> dict[str, str]:
    ids = a_group(outbound=False)(world)
    rules = [a_rule(-1, 0, "", "10.0.0.0/16")]
    world.ec2.authorize_security_group_egress(GroupId=ids["job_group"], IpPermissions=rules)
    return ids


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


def an_fsx(**members: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"fsx": world.fsx(**members)}


def an_fsx_in_one_zone(world: World) -> dict[str, str]:
    return {"fsx": world.fsx(SubnetIds=[world.ids["subnet_a"]])}


def an_fsx_open_on(*ports: int) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        group = world.group()
        for port in ports:
            world.let_in(group, port, from_group=world.ids["job_group"])
        return {"closed": group, "fsx": world.fsx(NetworkInterfaceIds=[world.interface(group)])}

    return make


GONE = "subnet-0123456789abcdef0"
SUBNETS_AT, GROUPS_AT = "vpc_config.subnets", "vpc_config.security_group_ids"

BROKEN = {
    "a subnet that is gone": Broken(
        nothing,
        NETWORK % ("{job_group}", "{subnet_a}, " + GONE),
        [("subnet-missing", "vpc_config.subnets[1]")],
        (GONE, "us-east-1"),
    ),
    "subnets of two VPCs": Broken(
        another_vpc, "", [("subnets-of-several-vpcs", SUBNETS_AT)], ("{subnet_b} in {other_vpc}",)
    ),
    "subnets that are too small": Broken(
        a_vpc(size=28),
        MACHINES % ("ml.m5.large", 12, ""),
        [("subnet-full", SUBNETS_AT)],
        ("{subnet_a} has 11", "needs 24 (12 x 2)"),
    ),
    "a subnet that is too small for EFA": Broken(
        a_vpc(size=28),
        MACHINES % ("ml.p4d.24xlarge", 3, ""),
        [("subnet-tight", SUBNETS_AT)],
        ("15 free addresses (3 x 5)",),
    ),
    "a zone without the machines": Broken(
        nothing,
        MACHINES % ("ml.p4d.24xlarge", 1, "") + "\n" + NETWORK % ("{job_group}", "{subnet_e}"),
        [("zone-lacks-type", SUBNETS_AT)],
        ("ml.p4d.24xlarge", "name a subnet in use1-az"),
    ),
    "a security group that is gone": Broken(
        nothing,
        NETWORK % ("{job_group}, sg-0123456789abcdef0", "{subnet_a}"),
        [("security-group-missing", "vpc_config.security_group_ids[1]")],
        ("sg-0123456789abcdef0", "{vpc}"),
    ),
    "a security group of another VPC": Broken(
        a_group_of_another_vpc,
        NETWORK % ("{job_group}, {other_group}", "{subnet_a}"),
        [("security-group-vpc", "vpc_config.security_group_ids[1]")],
        ("{other_group} is of {other_vpc}", "{vpc}"),
    ),
    "hosts that cannot talk": Broken(
        a_group(ports=(22,)), IN_GROUP, [("hosts-cannot-talk", GROUPS_AT)], ("inbound rule to {job_group}",)
    ),
    "a group that lets out to the VPC only": Broken(
        a_group_out_to_the_vpc_only, IN_GROUP, [("security-group-closed", GROUPS_AT)], ("TCP 443", "{job_group}")
    ),
    "no way to S3": Broken(
        a_vpc(route=no_route),
        "",
        [("s3-unreachable", SUBNETS_AT)],
        ("{subnet_b} ({table})", "--vpc-id {vpc} --service-name com.amazonaws.us-east-1.s3 --route-table-ids {table}"),
    ),
    "no way to S3 from one subnet": Broken(
        another_table_for_b, "", [("s3-unreachable-from-some", SUBNETS_AT)], ("{subnet_b} ({table})",)
    ),
    "an internet gateway only": Broken(
        a_vpc(route=an_internet_gateway),
        "",
        [("s3-by-internet-gateway", SUBNETS_AT)],
        ("no public addresses", "{table}"),
    ),
    "an EFS that is gone": Broken(
        nothing,
        SHARED % "fs-0123456789abcdef0",
        [("efs-missing", "channels.shared.file_system_id")],
        ("fs-0123456789abcdef0", "describe-file-systems"),
    ),
    "FSx taken for EFS": Broken(
        nothing, SHARED % "{fsx}", [("efs-missing", "channels.shared.file_system_id")], ("source: FSxLustre",)
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
    "an EFS of another VPC": Broken(
        an_efs_of_another_vpc,
        SHARED % "{efs}",
        [("efs-other-vpc", "channels.shared.file_system_id")],
        ("{other_vpc}", "the job is in {vpc}"),
    ),
    "an EFS that lets nobody in": Broken(
        a_closed_efs,
        SHARED % "{efs}",
        [("security-group-closed", "channels.shared.file_system_id")] * 2,
        ("inbound rule to {closed}: TCP 2049 from {job_group}",),
    ),
    "an FSx that is gone": Broken(
        nothing,
        FAST % ("fs-0123456789abcdef0", "/fsx1abcd/images"),
        [("fsx-missing", "channels.fast.file_system_id")],
        ("fs-0123456789abcdef0",),
    ),
    "an FSx that is being made": Broken(
        an_fsx(Lifecycle="CREATING"),
        FAST % ("{fsx}", "/fsx1abcd/images"),
        [("fsx-not-ready", "channels.fast.file_system_id")],
        ("CREATING", "wait"),
    ),
    "an FSx for Windows": Broken(
        an_fsx(FileSystemType="WINDOWS"),
        FAST % ("{fsx}", "/fsx1abcd/images"),
        [("fsx-not-lustre", "channels.fast.file_system_id")],
        ("WINDOWS",),
    ),
    "an FSx of another mount name": Broken(
        an_fsx(),
        FAST % ("{fsx}", "/fsx/images"),
        [("fsx-mount-name-wrong", "channels.fast.directory_path")],
        ("write '/fsx1abcd/images'",),
    ),
    "an FSx without its mount name": Broken(
        an_fsx(),
        FAST % ("{fsx}", "/some-data/images"),
        [("fsx-mount-name-wrong", "channels.fast.directory_path")],
        ("write '/fsx1abcd/some-data/images'",),
    ),
    "an FSx of another VPC": Broken(
        an_fsx(VpcId="vpc-0aaaaaaaaaaaaaaaa"),
        FAST % ("{fsx}", "/fsx1abcd"),
        [("fsx-other-vpc", "channels.fast.file_system_id")],
        ("vpc-0aaaaaaaaaaaaaaaa", "{vpc}"),
    ),
    "an FSx of another zone": Broken(
        an_fsx_in_one_zone,
        FAST % ("{fsx}", "/fsx1abcd"),
        [("fsx-other-zone", "channels.fast.file_system_id")],
        ("{subnet_b}", "use a subnet such as {subnet_a}"),
    ),
    "an FSx that lets nobody in": Broken(
        an_fsx_open_on(1018),
        FAST % ("{fsx}", "/fsx1abcd"),
        [("security-group-closed", "channels.fast.file_system_id")],
        ("inbound rule to {closed}: TCP 988 from {job_group}",),
    ),
    "an FSx that lets in on one port": Broken(
        an_fsx_open_on(988),
        FAST % ("{fsx}", "/fsx1abcd"),
        [("security-group-ports", "channels.fast.file_system_id")],
        ("TCP 1018-1023",),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_found_named_and_given_its_remedy(world: World, case: str) -> None:
    judge(world, BROKEN[case])
