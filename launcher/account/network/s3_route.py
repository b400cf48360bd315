"""The route from the job's subnets to S3: without one, a job in a VPC waits for its data until it fails.

The interfaces that SageMaker creates have no public addresses, so an internet gateway is no route for them. A target that may
lead to S3, such as a transit gateway or a firewall, counts as a route.

Network ACLs are stateless, so answers need their own inbound rule, on the ports from which Linux connects. Only what surely lets
nothing through counts: rules are tried by number, and the first match decides. A rule for a part of the addresses may be the
right part. But the addresses of S3 are public, so rules for private ranges help only with an endpoint inside the VPC.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator
from typing import Any, Literal

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.network.vpc import (
    GROUPS,
    SUBNETS,
    Described,
    described,
    egress_targets,
    group_ids,
    groups,
    subnet_ids,
    subnets,
    vpc_id,
)
from launcher.aws.account import AwsError

_HTTPS = 443
GONE = ("deleting", "deleted", "failed", "rejected", "expired")
_TARGETS = (
    *("NatGatewayId", "GatewayId", "TransitGatewayId", "NetworkInterfaceId"),
    *("InstanceId", "VpcPeeringConnectionId"),
)
_Access = Literal["yes", "internet gateway", "no"]


def _ask_routes(subject: Subject) -> Iterator[Finding]:
    vpc = vpc_id(subject)
    if vpc is None:
        return
    tables = described(subject, "route_tables", "vpc-id", [vpc])
    endpoints = described(subject, "vpc_endpoints", "vpc-id", [vpc])
    if endpoints_inside(endpoints):
        return  # reachable inside the VPC, whatever the routes
    yield from _groups_without_https(subject)
    gone = deleted_nat_gateways(subject, tables)
    by_way: dict[_Access, dict[str, list[str]]] = {"internet gateway": {}, "no": {}, "yes": {}}  # -> table -> subnets
    dead: set[str] = set()
    for subnet in subnets(subject):
        table = table_of(subnet["SubnetId"], tables)
        if table is not None:  # a shared VPC's tables may be hidden from this account
            way = _access_to_s3(table, endpoints, gone)
            by_way[way].setdefault(table["RouteTableId"], []).append(subnet["SubnetId"])
            dead |= _missing_targets(table, gone)
    create = f"run aws ec2 create-vpc-endpoint --vpc-id {vpc} --service-name com.amazonaws.{subject.account.region}.s3"
    create += subject.account.options
    shown = {
        way: joined(f"{joined(names)} ({table})" for table, names in found.items()) for way, found in by_way.items()
    }
    remedies = {way: f"{create} --route-table-ids {' '.join(sorted(found))}" for way, found in by_way.items()}
    if by_way["no"]:
        is_everywhere = sum(map(len, by_way["no"].values())) == len(subnets(subject))
        lack = "neither an S3 endpoint nor NAT"
        if dead:
            lack = f"no S3 endpoint, and route to {joined(sorted(dead), 1)}, which no longer exists"
        code = "s3-unreachable" if is_everywhere else "s3-unreachable-from-some"
        yield SUBNETS, code, f"{shown['no']} have {lack}; {remedies['no']}"
    if by_way["internet gateway"]:
        message = (
            f"the only way out of {shown['internet gateway']} is an internet gateway, and the job's interfaces have no public"
            f" addresses; {remedies['internet gateway']}"
        )
        yield SUBNETS, "s3-by-internet-gateway", message


def _groups_without_https(subject: Subject) -> Iterator[Finding]:
    """Find groups that do not let HTTPS out to S3's public addresses."""
    own, known = group_ids(subject), groups(subject)
    if known and len(known) == len(set(own)) and all(is_private(cidr) for cidr in egress_targets(known, _HTTPS)):
        wrong = f"do not let HTTPS out to S3 ({', '.join(own)})"
        yield GROUPS, "security-group-closed", f"{wrong}; add an outbound rule to {own[0]}: TCP 443 to 0.0.0.0/0"


def table_of(subnet: str, tables: list[Described]) -> Described | None:
    """Return the route table of a subnet: its own, or else the VPC's main one."""
    linked = [(each, table) for table in tables for each in table.get("Associations", ())]
    own = [table for each, table in linked if each.get("SubnetId") == subnet]
    main = [table for each, table in linked if each.get("Main")]
    return next(iter((*own, *main)), None)


def deleted_nat_gateways(subject: Subject, tables: list[Described]) -> set[str]:
    """Return the NAT gateways in routes that no longer work; none if you may not ask."""
    routes = [route for table in tables for route in table.get("Routes", ())]
    ids = {route["NatGatewayId"] for route in routes if route.get("NatGatewayId")}
    try:
        known = described(subject, "nat_gateways", "nat-gateway-id", ids)
    except AwsError as error:
        subject.could_not_ask(SUBNETS, error)
        return set()
    return {each["NatGatewayId"] for each in known if each.get("State") in GONE}


def _missing_targets(table: Described, gone: Collection[str]) -> set[str]:
    """Return the targets of a table's routes that no longer exist."""
    found = set()
    for route in table.get("Routes", ()):
        target = next((str(route[name]) for name in _TARGETS if route.get(name)), "")
        if target and (route.get("State") == "blackhole" or target in gone):
            found.add(target)
    return found


def _access_to_s3(table: Described, endpoints: list[Described], gone: Collection[str]) -> _Access:
    """Return the best way from a route table to S3."""
    if any(_is_for_s3(each) and table["RouteTableId"] in each.get("RouteTableIds", ()) for each in endpoints):
        return "yes"
    return way_out(table, {*gone, *(each["VpcEndpointId"] for each in endpoints if not _is_for_s3(each))})


def way_out(table: Described, unfit: Collection[str]) -> _Access:
    """Return the best way from a route table to public addresses; targets that are `unfit` do not count."""
    unfit = {"local", *unfit}
    found: _Access = "no"
    for route in table.get("Routes", ()):
        cidr = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock") or ""
        is_unfit = bool(unfit & {route.get("GatewayId"), route.get("NatGatewayId")})
        if route.get("State") == "blackhole" or is_unfit or is_private(cidr):
            continue
        if not route.get("GatewayId", "").startswith("igw-"):
            return "yes"
        found = "internet gateway"
    return found


def endpoints_inside(endpoints: list[Described]) -> list[Described]:
    """Return the endpoints through which S3 is reached inside the VPC."""
    return [each for each in endpoints if _is_for_s3(each) and each.get("VpcEndpointType") == "Interface"]


def s3_endpoints(subject: Subject) -> list[Described]:
    """Return the endpoints through which the job's subnets reach S3. Raises AwsError."""
    vpc = vpc_id(subject)
    if vpc is None:
        return []
    tables = described(subject, "route_tables", "vpc-id", [vpc])
    own = {table["RouteTableId"] for subnet in subnets(subject) if (table := table_of(subnet["SubnetId"], tables))}
    found = [each for each in described(subject, "vpc_endpoints", "vpc-id", [vpc]) if _is_for_s3(each)]
    return [
        each for each in found if each.get("VpcEndpointType") == "Interface" or own & {*each.get("RouteTableIds", ())}
    ]


def _is_for_s3(endpoint: Described) -> bool:
    """Return whether a VPC endpoint is for S3 and works."""
    works = str(endpoint.get("State", "available")).lower() not in GONE
    return works and str(endpoint.get("ServiceName", "")).endswith(".s3")


def is_private(cidr: str) -> bool:
    """Return whether an address range has no public address; a prefix list may have one."""
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    return network.prefixlen > 0 and network.is_private


CHECK = Check("way to S3", _ask_routes)


_ALL = "-1"
_TCP = "6"
_ANSWERS = (1024, 65535)  # the client ports of any operating system
_NEEDED = ((True, (_HTTPS, _HTTPS), "TCP 443 out"), (False, _ANSWERS, "answers in (TCP 1024-65535)"))


def _ask_acls(subject: Subject) -> Iterator[Finding]:
    vpc = vpc_id(subject)
    if vpc is None:
        return
    inside = endpoints_inside(described(subject, "vpc_endpoints", "vpc-id", [vpc]))
    beside = {name for each in inside for name in each.get("SubnetIds", ())}  # ACLs do not apply within a subnet
    closed: dict[str, list[str]] = {}
    for acl in described(subject, "network_acls", "association.subnet-id", subnet_ids(subject)):
        blocked = [
            words
            for is_out, ports, words in _NEEDED
            if not lets_through(acl.get("Entries", ()), is_out, ports, private=bool(inside))
        ]
        names = {str(each.get("SubnetId")) for each in acl.get("Associations", ())} & {*subnet_ids(subject)} - beside
        if blocked and names:
            closed[f"{acl['NetworkAclId']} does not let {' or '.join(blocked)}"] = sorted(names)
    if closed:
        is_everywhere = sum(map(len, closed.values())) == len(subnets(subject))
        shown = joined(f"{words} for {joined(names)}" for words, names in closed.items())
        remedy = "allow TCP 443 out to 0.0.0.0/0 and TCP 1024-65535 in from 0.0.0.0/0"
        message = f"the network ACL {shown}, so the job cannot reach S3; {remedy}"
        yield SUBNETS, "network-acl-closed" if is_everywhere else "network-acl-closed-in-some", message


def lets_through(entries: Any, is_out: bool, ports: tuple[int, int], *, private: bool) -> bool:
    """Return whether an ACL's entries, as DescribeNetworkAcls returns them, may let TCP through on one of the ports, first to last.

    `is_out` means outbound; rules for private addresses count only if `private`.
    """
    rules = [each for each in entries if bool(each.get("Egress")) == is_out and each.get("Protocol") in (_ALL, _TCP)]
    denied: list[tuple[int, int]] = []  # ports that are denied to all of IPv4
    for rule in sorted(rules, key=lambda each: int(each.get("RuleNumber", 0))):
        first, last = _ports(rule)
        cidr = rule.get("CidrBlock", "")  # without IPv6, since S3 has public IPv6 addresses
        if rule.get("RuleAction") == "deny":
            if cidr == "0.0.0.0/0":
                denied.append((first, last))
        elif (private or not is_private(cidr)) and _has_open_port(max(first, ports[0]), min(last, ports[1]), denied):
            return True
    return False


def _ports(rule: Described) -> tuple[int, int]:
    ports = rule.get("PortRange")
    return (0, 65535) if rule.get("Protocol") == _ALL or not ports else (int(ports["From"]), int(ports["To"]))


def _has_open_port(first: int, last: int, denied: list[tuple[int, int]]) -> bool:
    """Return whether any port of a range is not denied by an earlier rule."""
    at = first
    for start, end in sorted(denied):
        if start <= at <= end:
            at = end + 1
    return at <= last


NETWORK_ACLS = Check("network ACLs", _ask_acls)
