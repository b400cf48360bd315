"""The route from the job's subnets to S3: without one, a job in a VPC waits for its data until it fails.

The interfaces that SageMaker creates have no public addresses, so an internet gateway is no route for them. A target that may
lead to S3, such as a transit gateway or a firewall, counts as a route.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from launcher.aws.account import AwsError
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.security_groups import leaves_for
from launcher.preflight.network.vpc import CLOSED, SUBNETS, group_ids, groups, subnet_ids, subnets, vpc_id

_HTTPS = 443
_GONE = ("deleting", "deleted", "failed", "rejected", "expired")
_TARGETS = (
    "NatGatewayId",
    "GatewayId",
    "TransitGatewayId",
    "NetworkInterfaceId",
    "InstanceId",
    "VpcPeeringConnectionId",
)
Way = Literal["yes", "internet gateway", "no"]


def s3_is_reached(subject: Subject) -> Iterator[Finding]:
    """Follow the route table of each subnet: an S3 endpoint, NAT, or another way out. Raises AwsError."""
    vpc = vpc_id(subject) if subnet_ids(subject) else None
    if vpc is None:
        return
    of_vpc = [{"Name": "vpc-id", "Values": [vpc]}]
    tables = subject.ask("ec2", "describe_route_tables", Filters=of_vpc).get("RouteTables", ())
    endpoints = subject.ask("ec2", "describe_vpc_endpoints", Filters=of_vpc).get("VpcEndpoints", ())
    yield from _groups_let_out(subject, endpoints)
    if any(is_for_s3(each) and each.get("VpcEndpointType") == "Interface" for each in endpoints):
        return  # reachable inside the VPC, whatever the routes
    gone = _nat_gateways_gone(subject, tables)
    ways: dict[str, tuple[str, Way]] = {}
    dead: set[str] = set()
    for subnet in subnets(subject):
        table = _table_of(subnet["SubnetId"], tables)
        if table is not None:  # a shared VPC's tables may be hidden from this account
            ways[subnet["SubnetId"]] = (table["RouteTableId"], _way(table, endpoints, gone))
            dead |= _dead_ends(table, gone)
    blocked = {name: table for name, (table, way) in ways.items() if way == "no"}
    public = {name: table for name, (table, way) in ways.items() if way == "internet gateway"}
    region = subject.account.region
    if blocked:
        code = "s3-unreachable" if len(blocked) == len(subnets(subject)) else "s3-unreachable-from-some"
        lack = (
            f"no S3 endpoint, and route to {joined(sorted(dead), 1)}, which no longer exists"
            if dead
            else "neither an S3 endpoint nor NAT"
        )
        yield SUBNETS, code, f"{_by_table(blocked)} have {lack}; {_remedy(vpc, region, blocked)}"
    if public:
        yield (
            SUBNETS,
            "s3-by-internet-gateway",
            f"the only way out of {_by_table(public)} is an internet gateway, and the job's interfaces have no public addresses;"
            f" {_remedy(vpc, region, public)}",
        )


def _by_table(subnets_and_tables: Mapping[str, str]) -> str:
    """Return `subnet-a, subnet-b (rtb-c)`."""
    by_table: dict[str, list[str]] = {}
    for name, table in subnets_and_tables.items():
        by_table.setdefault(table, []).append(name)
    return joined(f"{joined(names)} ({table})" for table, names in by_table.items())


def _remedy(vpc: str, region: str, subnets_and_tables: Mapping[str, str]) -> str:
    tables = " ".join(sorted(set(subnets_and_tables.values())))
    endpoint = f"--vpc-id {vpc} --service-name com.amazonaws.{region}.s3 --route-table-ids {tables}"
    return f"run aws ec2 create-vpc-endpoint {endpoint}"


def _groups_let_out(subject: Subject, endpoints: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Find groups that do not let HTTPS out to S3's addresses or to an endpoint inside the VPC."""
    own, known = group_ids(subject), groups(subject)
    if not known or len(known) != len(set(own)):
        return
    ranges = leaves_for(known, _HTTPS)
    inside = any(is_for_s3(each) and each.get("VpcEndpointType") == "Interface" for each in endpoints)
    if not inside and all(is_private(cidr) for cidr in ranges):
        yield (
            ("vpc_config", "security_group_ids"),
            "security-group-closed",
            f"do not let HTTPS out to S3 ({', '.join(own)}); add an outbound rule to {own[0]}: TCP 443 to 0.0.0.0/0",
        )


def _table_of(subnet: str, tables: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the route table of a subnet: its own, or else the VPC's main one."""
    main = None
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                main = table
    return main


def _nat_gateways_gone(subject: Subject, tables: list[Mapping[str, Any]]) -> set[str]:
    """Return the NAT gateways in routes that no longer work; none if you may not ask."""
    routes = [route for table in tables for route in table.get("Routes", ())]
    ids = sorted({route["NatGatewayId"] for route in routes if route.get("NatGatewayId")})
    if not ids:
        return set()
    filters = [{"Name": "nat-gateway-id", "Values": ids}]
    try:
        known = subject.ask("ec2", "describe_nat_gateways", Filter=filters).get("NatGateways", ())
    except AwsError as error:
        subject.could_not_ask(SUBNETS, error)
        return set()
    return {each["NatGatewayId"] for each in known if each.get("State") in _GONE}


def _dead_ends(table: Mapping[str, Any], gone: Collection[str]) -> set[str]:
    """Return the targets of a table's routes that no longer exist."""
    found = set()
    for route in table.get("Routes", ()):
        target = next((str(route[name]) for name in _TARGETS if route.get(name)), "")
        if target and (route.get("State") == "blackhole" or target in gone):
            found.add(target)
    return found


def _way(table: Mapping[str, Any], endpoints: list[Mapping[str, Any]], gone: Collection[str] = ()) -> Way:
    """Return the best way from a route table to S3."""
    for_s3 = [each for each in endpoints if is_for_s3(each)]
    if any(table["RouteTableId"] in each.get("RouteTableIds", ()) for each in for_s3):
        return "yes"
    others = {each["VpcEndpointId"] for each in endpoints if not is_for_s3(each)}
    found: Way = "no"
    for route in table.get("Routes", ()):
        target = str(route.get("GatewayId", ""))
        cidr = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock") or ""
        if route.get("State") == "blackhole" or target == "local" or target in others or is_private(cidr):
            continue
        if route.get("NatGatewayId") in gone:
            continue
        if not target.startswith("igw-"):
            return "yes"
        found = "internet gateway"
    return found


def is_for_s3(endpoint: Mapping[str, Any]) -> bool:
    """Whether a VPC endpoint is for S3 and works."""
    works = str(endpoint.get("State", "available")).lower() not in _GONE
    return works and str(endpoint.get("ServiceName", "")).endswith(".s3")


def is_private(cidr: str) -> bool:
    """Whether an address range has no public address; a prefix list may have one."""
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    return network.prefixlen > 0 and network.is_private


CHECK = Check(
    "way to S3",
    "Can the job reach S3 from its subnets?",
    s3_is_reached,
    {
        "s3-unreachable": (
            "error",
            "None of the job's subnets can reach S3: the job gets no data and saves no output.",
        ),
        "s3-unreachable-from-some": (
            "warning",
            "One of the subnets, in which the job may be placed, cannot reach S3.",
        ),
        "s3-by-internet-gateway": (
            "warning",
            "Internet gateways serve only public addresses, and the job's interfaces have none.",
        ),
        "security-group-closed": CLOSED,
    },
)
