"""The routes from the job's subnets to S3, and to a package index for `code.requirements`.

Without a route to S3, a job in a VPC waits for its data until it fails. The interfaces that SageMaker creates have no public
addresses, so an internet gateway is no route for them. A target that may lead out, such as a transit gateway or a firewall,
counts as a route.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from launcher.account.check import Subject
from launcher.account.vpc import (
    GROUPS,
    SUBNETS,
    Described,
    allowed,
    described,
    group_ids,
    known_groups,
    known_subnets,
    vpc_id,
)
from launcher.errors import Problem, SpecPath, first_names

_HTTPS = 443
_GONE = ("deleting", "deleted", "failed", "rejected", "expired")
_REQUIREMENTS: SpecPath = ("code", "requirements")
_OTHER_INDEX = ("PIP_", "UV_", "HTTPS_PROXY", "ALL_PROXY")  # beginnings of variables


def way_to_s3(subject: Subject) -> Iterator[Problem]:
    """Can the job reach S3 from its subnets?"""
    vpc, endpoints = vpc_id(subject), s3_endpoints(subject)
    if vpc is None or any(each.get("VpcEndpointType") == "Interface" for each in endpoints):
        return  # an interface endpoint is reachable inside the VPC, whatever the routes
    own, known = group_ids(subject), known_groups(subject)
    if known and len(known) == len(set(own)) and all(map(_is_private, allowed(known, _HTTPS, outbound=True)[1])):
        wrong = f"do not let HTTPS out to S3 ({', '.join(own)})"
        message = f"{wrong}; add an outbound rule to {own[0]}: TCP 443 to 0.0.0.0/0"
        yield Problem(GROUPS, message, "security-group-closed")
    with_endpoint = {name for each in endpoints for name in each.get("RouteTableIds", ())}
    routes = {name: (table["RouteTableId"], _leads_out(table)) for name, table in _tables(subject).items()}
    closed = {name: table for name, (table, is_open) in routes.items() if table not in with_endpoint and not is_open}
    if closed:
        create = f"aws ec2 create-vpc-endpoint --vpc-id {vpc} --service-name com.amazonaws.{subject.account.region}.s3"
        create += f"{subject.account.options} --route-table-ids {' '.join(sorted({*closed.values()}))}"
        code = "s3-unreachable" if len(closed) == len(known_subnets(subject)) else "s3-unreachable-from-some"
        lack = "neither an S3 endpoint nor NAT (an internet gateway serves public addresses, which the job has not)"
        yield Problem(SUBNETS, f"{first_names(closed)} have {lack}; run {create}", code)


def _tables(subject: Subject) -> dict[str, Described]:
    """Return the route table of each subnet: its own, or else the VPC's main one; a shared VPC's may be hidden. Raises AwsError."""
    vpc = vpc_id(subject)
    tables = described(subject, "route_tables", "vpc-id", [vpc] if vpc else ())
    linked = [(each, table) for table in tables for each in table.get("Associations", ())]
    main = next((table for each, table in linked if each.get("Main")), None)
    own = {str(each["SubnetId"]): table for each, table in linked if each.get("SubnetId")}
    found = {name: own.get(name, main) for name in (str(each["SubnetId"]) for each in known_subnets(subject))}
    return {name: table for name, table in found.items() if table is not None}


def _leads_out(table: Described) -> bool:
    """Return whether a table has a route to public addresses; an endpoint for a list of prefixes leads to its service only."""
    for route in table.get("Routes", ()):
        cidr = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock") or ""
        gateway = route.get("GatewayId", "")
        is_endpoint = gateway.startswith("vpce-") and not cidr
        is_dead = route.get("State") == "blackhole" or gateway == "local" or gateway.startswith("igw-")
        if not (is_dead or is_endpoint or _is_private(cidr)):
            return True
    return False


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
    closed = [name for name, table in _tables(subject).items() if not _leads_out(table)]
    if closed:
        message = (
            f"cannot be downloaded, since no NAT leads out of {first_names(closed)}; route the subnets to a NAT gateway, install"
            " the packages in the image, or set PIP_INDEX_URL to an index in the VPC"
        )
        yield Problem(_REQUIREMENTS, message, "requirements-unreachable")
