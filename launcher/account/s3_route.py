"""The routes from the job's subnets to S3, to a package index for `code.requirements`, and to Systems Manager.

Without a route to S3, a job in a VPC waits for its data until it fails. The interfaces that SageMaker creates have no public
addresses, so an internet gateway is no route for them. A target that may lead out, such as a transit gateway or a firewall,
counts as a route.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Literal

from launcher.account.check import Subject, joined
from launcher.account.needs import REMOTE_DEBUG
from launcher.account.network import (
    GROUPS,
    SUBNETS,
    Described,
    described,
    egress_targets,
    group_ids,
    known_groups,
    known_subnets,
    vpc_id,
)
from launcher.errors import Problem, SpecPath

_HTTPS = 443
_GONE = ("deleting", "deleted", "failed", "rejected", "expired")
_TARGETS = (
    *("NatGatewayId", "GatewayId", "TransitGatewayId", "NetworkInterfaceId"),
    *("InstanceId", "VpcPeeringConnectionId"),
)
_REQUIREMENTS: SpecPath = ("code", "requirements")
_OTHER_INDEX = ("PIP_", "UV_", "HTTPS_PROXY", "ALL_PROXY")  # beginnings of variables
# Systems Manager user guide, session-manager-getting-started-privatelink
_SSM = ("ssm", "ssmmessages")
_Access = Literal["yes", "internet gateway", "no"]


def way_to_s3(subject: Subject) -> Iterator[Problem]:
    """Can the job reach S3 from its subnets?"""
    vpc, endpoints = vpc_id(subject), s3_endpoints(subject)
    if vpc is None or any(each.get("VpcEndpointType") == "Interface" for each in endpoints):
        return  # an interface endpoint is reachable inside the VPC, whatever the routes
    own, known = group_ids(subject), known_groups(subject)
    if known and len(known) == len(set(own)) and all(_is_private(cidr) for cidr in egress_targets(known, _HTTPS)):
        wrong = f"do not let HTTPS out to S3 ({', '.join(own)})"
        message = f"{wrong}; add an outbound rule to {own[0]}: TCP 443 to 0.0.0.0/0"
        yield Problem(GROUPS, message, "security-group-closed")
    tables = _tables(subject)
    with_endpoint = {name for each in endpoints for name in each.get("RouteTableIds", ())}
    by_way: dict[_Access, dict[str, list[str]]] = {"internet gateway": {}, "no": {}}  # -> table -> subnets
    for name, table in tables.items():
        way = "yes" if table["RouteTableId"] in with_endpoint else _way_out(table)
        if way != "yes":
            by_way[way].setdefault(table["RouteTableId"], []).append(name)
    create = f"run aws ec2 create-vpc-endpoint --vpc-id {vpc} --service-name com.amazonaws.{subject.account.region}.s3"
    create += subject.account.options
    for way, found in by_way.items():
        closed = {name for names in found.values() for name in names}
        shown = joined(f"{joined(names)} ({table})" for table, names in found.items())
        remedy = f"{create} --route-table-ids {' '.join(sorted(found))}"
        if closed and way == "no":
            dead = sorted({target for name in closed for target in _missing_targets(tables[name])})
            lack = "neither an S3 endpoint nor NAT"
            if dead:
                lack = f"no S3 endpoint, and route to {joined(dead, 1)}, which no longer exists"
            code = "s3-unreachable" if len(closed) == len(known_subnets(subject)) else "s3-unreachable-from-some"
            yield Problem(SUBNETS, f"{shown} have {lack}; {remedy}", code)
        elif closed:
            why = "an internet gateway, and the job's interfaces have no public addresses"
            message = f"the only way out of {shown} is {why}; {remedy}"
            yield Problem(SUBNETS, message, "s3-by-internet-gateway")


def _tables(subject: Subject) -> dict[str, Described]:
    """Return the route table of each subnet: its own, or else the VPC's main one; a shared VPC's may be hidden. Raises AwsError."""
    vpc = vpc_id(subject)
    tables = described(subject, "route_tables", "vpc-id", [vpc] if vpc else ())
    linked = [(each, table) for table in tables for each in table.get("Associations", ())]
    main = next((table for each, table in linked if each.get("Main")), None)
    own = {str(each["SubnetId"]): table for each, table in linked if each.get("SubnetId")}
    found = {name: own.get(name, main) for name in (str(each["SubnetId"]) for each in known_subnets(subject))}
    return {name: table for name, table in found.items() if table is not None}


def _missing_targets(table: Described) -> Iterator[str]:
    """Yield the targets of a table's routes that no longer exist."""
    for route in table.get("Routes", ()):
        if route.get("State") == "blackhole":
            yield next((str(route[name]) for name in _TARGETS if route.get(name)), "a target")


def _way_out(table: Described) -> _Access:
    """Return the best way from a route table to public addresses; an endpoint for a list of prefixes leads to its service only."""
    found: _Access = "no"
    for route in table.get("Routes", ()):
        cidr = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock") or ""
        gateway = route.get("GatewayId", "")
        is_endpoint = gateway.startswith("vpce-") and not cidr
        if route.get("State") == "blackhole" or gateway == "local" or is_endpoint or _is_private(cidr):
            continue
        if not gateway.startswith("igw-"):
            return "yes"
        found = "internet gateway"
    return found


def s3_endpoints(subject: Subject) -> Sequence[Described]:
    """Return the endpoints through which the job's subnets reach S3. Raises AwsError."""
    own = {table["RouteTableId"] for table in _tables(subject).values()}
    found = [each for each in _endpoints(subject) if str(each.get("ServiceName", "")).endswith(".s3")]
    return [
        each for each in found if each.get("VpcEndpointType") == "Interface" or own & {*each.get("RouteTableIds", ())}
    ]


def _endpoints(subject: Subject) -> list[Described]:
    """Return the VPC's endpoints that work. Raises AwsError."""
    vpc = vpc_id(subject)
    found = described(subject, "vpc_endpoints", "vpc-id", [vpc] if vpc else ())
    return [each for each in found if str(each.get("State", "available")).lower() not in _GONE]


def _is_private(cidr: str) -> bool:
    """Return whether an address range has no public address; a prefix list may have one."""
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    return network.prefixlen > 0 and network.is_private


def way_to_package_index(subject: Subject) -> Iterator[Problem]:
    """Can the container reach a package index from the subnets, if it has requirements to install?

    Settings of pip or of a proxy in the environment may name an index inside the VPC, and so may an endpoint of CodeArtifact:
    nothing is reported then.
    """
    code = subject.draft.spec.code
    variables = subject.draft.get("Environment") or {}
    if code is None or code.requirements is None or any(name.upper().startswith(_OTHER_INDEX) for name in variables):
        return
    if any(".codeartifact." in str(each.get("ServiceName")) for each in _endpoints(subject)):
        return
    closed = [name for name, table in _tables(subject).items() if _way_out(table) != "yes"]
    if closed:
        message = (
            f"cannot be downloaded, since no NAT leads out of {joined(closed)}; route the subnets to a NAT gateway, install the"
            " packages in the image, or set PIP_INDEX_URL to an index in the VPC"
        )
        yield Problem(_REQUIREMENTS, message, "requirements-unreachable")


def way_to_ssm(subject: Subject) -> Iterator[Problem]:
    """Can Systems Manager reach the job's containers, if remote debugging is enabled?"""
    if not subject.draft.get("RemoteDebugConfig.EnableRemoteDebug"):
        return
    if subject.draft.get("EnableNetworkIsolation"):
        yield Problem(
            REMOTE_DEBUG, "has no effect with enable_network_isolation; remove one of them", "ssm-unreachable"
        )
        return
    vpc = vpc_id(subject)
    services = [str(each.get("ServiceName", "")).rpartition(".")[2] for each in _endpoints(subject)] if vpc else []
    missing = [name for name in _SSM if name not in services]
    closed = [name for name, table in _tables(subject).items() if _way_out(table) != "yes"] if vpc and missing else []
    if closed:
        region = subject.account.region
        names = joined(f"com.amazonaws.{region}.{name}" for name in missing)
        lack = f"no NAT leads out of {joined(closed)}, and {vpc} has no interface endpoint for {names}"
        yield Problem(REMOTE_DEBUG, f"{lack}; create it, or a NAT gateway", "ssm-unreachable")
