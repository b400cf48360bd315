"""Networks in which the job cannot run or cannot reach its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from account_data import Broken
from account_world import IN_GROUP, MACHINES, NETWORK, World, a_rule, nothing


def a_vpc(
    *, route: Callable[[World, str, str], object] | None = None, size: int = 24
) -> Callable[[World], dict[str, str]]:
    """A separate VPC, in which everything else is right."""

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


def a_nat(world: World, vpc: str, table: str) -> str:
    address = world.ec2.allocate_address(Domain="vpc")["AllocationId"]
    gateway = world.ec2.create_nat_gateway(SubnetId=world.ids["subnet_a"], AllocationId=address)["NatGateway"]
    world.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway["NatGatewayId"])
    return str(gateway["NatGatewayId"])


def _with_route_to_firewall(answer: dict[str, Any]) -> dict[str, Any]:
    for table in answer["RouteTables"]:
        table["Routes"].append({"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": FIREWALL, "State": "active"})
    return answer


def _with_firewall(answer: dict[str, Any]) -> dict[str, Any]:
    """DescribeVpcEndpoints' answer in a VPC whose way out is a firewall."""
    endpoint = {
        "VpcEndpointId": FIREWALL,
        "ServiceName": "com.amazonaws.vpce.us-east-1.vpce-svc-1",
        "State": "available",
    }
    return {**answer, "VpcEndpoints": [*answer["VpcEndpoints"], endpoint]}


def _dead_nat(answer: dict[str, Any]) -> dict[str, Any]:
    """DescribeRouteTables' answer after the NAT gateways have been deleted."""
    for route in [route for table in answer["RouteTables"] for route in table["Routes"] if "NatGatewayId" in route]:
        route["State"] = "blackhole"
    return answer


FIREWALL = "vpce-0123456789abcdef0"
GONE = "subnet-0123456789abcdef0"
# No one reads them; any file will do.
WITH_REQUIREMENTS = f"code: {{{{directory: {Path(__file__).parent}, entry_point: job.py, requirements: quota.py}}}}"
REQUIREMENTS_AT = "code.requirements"
SUBNETS_AT, GROUPS_AT = "vpc_config.subnets", "vpc_config.security_group_ids"

BROKEN = {
    "packages to install, and only an endpoint for S3": Broken(
        a_vpc(),
        WITH_REQUIREMENTS,
        [("requirements-unreachable", REQUIREMENTS_AT)],
        ("no NAT leads out of {subnet_a}, {subnet_b}", "PIP_INDEX_URL"),
    ),
    "packages to install from an index in the VPC": Broken(
        a_vpc(), WITH_REQUIREMENTS + "\nenvironment: {{PIP_INDEX_URL: https://index.internal/}}", [], ()
    ),
    "a missing subnet": Broken(
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
        ("{subnet_a} has 11", "needs 24"),
    ),
    "a zone without the machines": Broken(
        nothing,
        MACHINES % ("ml.p4d.24xlarge", 1, "") + "\n" + NETWORK % ("{job_group}", "{subnet_e}"),
        [("zone-lacks-type", SUBNETS_AT)],
        ("ml.p4d.24xlarge", "name a subnet in use1-az"),
    ),
    "a missing security group": Broken(
        nothing,
        NETWORK % ("{job_group}, sg-0123456789abcdef0", "{subnet_a}"),
        [("security-group-missing", "vpc_config.security_group_ids[1]")],
        ("sg-0123456789abcdef0", "{vpc}"),
    ),
    "a security group in another VPC": Broken(
        a_group_of_another_vpc,
        NETWORK % ("{job_group}, {other_group}", "{subnet_a}"),
        [("security-group-vpc", "vpc_config.security_group_ids[1]")],
        ("{other_group} is in {other_vpc}", "{vpc}"),
    ),
    "hosts that cannot talk": Broken(
        a_group(ports=(22,)), IN_GROUP, [("hosts-cannot-talk", GROUPS_AT)], ("inbound rule to {job_group}",)
    ),
    "a group that lets out only to the VPC": Broken(
        a_group_out_to_the_vpc_only, IN_GROUP, [("security-group-closed", GROUPS_AT)], ("TCP 443", "{job_group}")
    ),
    "no way to S3": Broken(
        a_vpc(route=no_route),
        "",
        [("s3-unreachable", SUBNETS_AT)],
        ("{subnet_b}", "--vpc-id {vpc} --service-name com.amazonaws.us-east-1.s3 --route-table-ids {table}"),
    ),
    "no way to S3 from one subnet": Broken(
        another_table_for_b, "", [("s3-unreachable-from-some", SUBNETS_AT)], ("{subnet_b}",)
    ),
    "a deleted NAT gateway": Broken(
        a_vpc(route=a_nat),
        "",
        [("s3-unreachable", SUBNETS_AT)],
        ("{subnet_a}", "create-vpc-endpoint"),
        {"describe_route_tables": _dead_nat},
    ),
    "a way out through a firewall": Broken(
        a_vpc(route=no_route),
        "",
        [],
        (),
        {"describe_route_tables": _with_route_to_firewall, "describe_vpc_endpoints": _with_firewall},
    ),
    "only an internet gateway": Broken(
        a_vpc(route=an_internet_gateway),
        "",
        [("s3-unreachable", SUBNETS_AT)],
        ("public addresses", "{table}"),
    ),
}
