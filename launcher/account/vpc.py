"""The job's network: its subnets, in one of which SageMaker creates interfaces for its machines, their zones, groups and routes.

IDs are passed as filters: the answer then contains those that exist, while a call that names them fails at the first missing one.
Rules of security groups only ever allow, so several groups allow what any of them does. A rule that cannot be judged alone, such as
a prefix list, counts as allowing: a check that reports `closed` must be right.

Without a route to S3, a job waits for its data until it fails. Its interfaces have no public addresses, so an internet gateway is
no route for them. A target that may lead out, such as a transit gateway or a firewall, counts as a route.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from launcher.account.check import Subject
from launcher.account.creation import alternatives
from launcher.errors import Problem, SpecPath, first_names

SUBNETS: SpecPath = ("vpc_config", "subnets")
GROUPS: SpecPath = ("vpc_config", "security_group_ids")
_EPHEMERAL = (32768, 60999)  # the ends of Linux's ephemeral ports, which gloo and NCCL listen on
Described = Mapping[str, Any]  # one resource in an answer of EC2
_HTTPS = 443
_GONE = ("deleting", "deleted", "failed", "rejected", "expired")
_REQUIREMENTS: SpecPath = ("code", "requirements")
_OTHER_INDEX = ("PIP_", "UV_", "HTTPS_PROXY", "ALL_PROXY")  # beginnings of variables


def described(subject: Subject, kind: str, name: str, values: Iterable[str], **more: Any) -> list[Described]:
    """Return what EC2 describes; nothing if there are no values to filter by. Raises AwsError.

    `kind` is the resources in the plural, such as `route_tables` for DescribeRouteTables, `name` that of a filter, such as
    `vpc-id`; values of no resource are ignored.
    """
    wanted = sorted(set(values))
    if not wanted:
        return []
    answer = subject.ask("ec2", f"describe_{kind}", Filters=[{"Name": name, "Values": wanted}], **more)
    return list(answer.get(kind.title().replace("_", ""), ()))


def group_ids(subject: Subject) -> Sequence[str]:
    return tuple(subject.draft.get("VpcConfig.SecurityGroupIds") or ())


def known_subnets(subject: Subject) -> list[Described]:
    """Return those of the job's subnets that exist. Raises AwsError."""
    return described(subject, "subnets", "subnet-id", subject.draft.get("VpcConfig.Subnets") or ())


def known_groups(subject: Subject) -> list[Described]:
    """Return those of the job's security groups that exist. Raises AwsError."""
    return described(subject, "security_groups", "group-id", group_ids(subject))


def vpc_id(subject: Subject) -> str | None:
    """Return the VPC of the job's subnets; None if they are in several, or unknown. Raises AwsError."""
    ids = {subnet["VpcId"] for subnet in known_subnets(subject)}
    return ids.pop() if len(ids) == 1 else None


def zone(resource: Described) -> str:
    """Return the ID of its zone, such as `euw1-az1`, which is the same in every account; the zone's name if it has no ID."""
    return str(resource.get("AvailabilityZoneId") or resource.get("AvailabilityZone"))


def subnets(subject: Subject) -> Iterator[Problem]:
    """Do the subnets exist, in one VPC, with addresses for all machines?"""
    known = {subnet["SubnetId"]: subnet for subnet in known_subnets(subject)}
    for index, name in enumerate(subject.draft.get("VpcConfig.Subnets") or ()):
        if name not in known:
            message = f"{name} does not exist in {subject.account.region}; name a subnet in the job's region"
            yield Problem((*SUBNETS, index), message, "subnet-missing")
    vpcs = {name: subnet["VpcId"] for name, subnet in known.items()}
    if len(set(vpcs.values())) > 1:
        shown = first_names(f"{name} in {vpc}" for name, vpc in vpcs.items())
        message = f"are in several VPCs: {shown}; name subnets of one VPC"
        yield Problem(SUBNETS, message, "subnets-of-several-vpcs")
    free = {name: int(subnet.get("AvailableIpAddressCount", 1 << 30)) for name, subnet in known.items()}
    need = min((sum(each.addresses for each in choice) for choice in alternatives(subject.draft)), default=0)
    if free and sum(free.values()) < need:
        shown = first_names(f"{name} has {count}" for name, count in free.items())
        message = f"have too few free addresses: {shown}, and the job needs {need}; name a larger subnet"
        yield Problem(SUBNETS, message, "subnet-full")


def zones(subject: Subject) -> Iterator[Problem]:
    """Does EC2 offer the instance type in a zone of the subnets?"""
    ours = {zone(subnet) for subnet in known_subnets(subject)}
    types = {each.instance_type for choice in alternatives(subject.draft) for each in choice} if ours else ()
    for name in sorted(types):
        kind, by_zone = name.removeprefix("ml."), {"LocationType": "availability-zone-id"}
        found = described(subject, "instance_type_offerings", "instance-type", [kind], **by_zone)
        offered = {each["Location"] for each in found}
        # SageMaker may have types that EC2 does not know, so a type that is offered nowhere is not reported.
        if offered and not offered & ours:
            remedy = f"name a subnet in {first_names(sorted(offered))}"
            message = f"are in {first_names(sorted(ours))}, where EC2 has no {name}; {remedy}"
            yield Problem(SUBNETS, message, "zone-lacks-type")


def security_groups(subject: Subject) -> Iterator[Problem]:
    """Do the security groups exist, in the subnets' VPC, and let the job's hosts talk to each other?"""
    own = group_ids(subject)
    known = {group["GroupId"]: group for group in known_groups(subject)}
    vpc = vpc_id(subject)
    for index, name in enumerate(own):
        path = (*GROUPS, index)
        if name not in known:
            where = f"does not exist in {subject.account.region}"
            message = f"{name} {where}; name a group in {vpc or 'the VPC of the subnets'}"
            yield Problem(path, message, "security-group-missing")
            continue
        its = known[name].get("VpcId")
        if vpc is not None and its not in (vpc, None):
            message = (
                f"{name} is in {its}, but the subnets are in {vpc}; name a group in {vpc}, or associate it with that"
            )
            yield Problem(path, message, "security-group-vpc")
    if own and len(known) == len(set(own)):
        yield from _hosts_talk(subject)


def _hosts_talk(subject: Subject) -> Iterator[Problem]:
    """Find groups that do not let the job's hosts in from, or out to, each other."""
    most = max(alternatives(subject.draft), key=lambda choice: sum(each.instances for each in choice), default=[])
    if sum(each.instances for each in most) < 2:
        return
    own, members = group_ids(subject), known_groups(subject)
    cidrs = _ranges(known_subnets(subject))
    has_efa = any(each.has_efa for each in most)
    ports: tuple[int | None, ...] = (None,) if has_efa else _EPHEMERAL
    what = "all traffic, as EFA needs," if has_efa else "TCP"
    for way, peer in (("in", "from"), ("out", "to")):
        if not all(admits(members, port, own, cidrs, outbound=way == "out") for port in ports):
            rule = f"an {way}bound rule to {own[0]}: all traffic {peer} {own[0]}"
            wrong = f"do not let {what} {way} {peer} the job's other hosts, so distributed training will hang"
            yield Problem(GROUPS, f"{wrong}; add {rule}", "hosts-cannot-talk")


def _ranges(subnets: Iterable[Described]) -> list[str]:
    return [subnet["CidrBlock"] for subnet in subnets if subnet.get("CidrBlock")]


def closed(subject: Subject, what: str, its_groups: Sequence[str], port: int) -> str | None:
    """Return why the groups that protect `what` do not let the job in on a TCP port, and what to do; None if they do.

    Raises AwsError.
    """
    groups, own = described(subject, "security_groups", "group-id", its_groups), group_ids(subject)
    if len(groups) < len(set(its_groups)) or admits(groups, port, own, _ranges(known_subnets(subject))):
        return None  # not all of them are visible, or the job is let in
    return (
        f"the security groups of {what} ({', '.join(its_groups)}) do not let the job in on TCP {port}; add an inbound"
        f" rule to {its_groups[0]}: TCP {port} from {own[0]}"
    )


def allowed(groups: Iterable[Described], port: int | None, *, outbound: bool = False) -> tuple[set[str], list[str]]:
    """Return the groups, and the ranges and prefix lists, that security groups let TCP on a port in from, or out to.

    `groups` are as DescribeSecurityGroups returns them. No port means all protocols and ports.
    """
    direction = "IpPermissionsEgress" if outbound else "IpPermissions"
    rules = [rule for group in groups for rule in group.get(direction, ()) if _is_for(rule, port)]
    named = {str(each.get("GroupId")) for rule in rules for each in rule.get("UserIdGroupPairs", ())}
    ranges = [each["CidrIp"] for rule in rules for each in rule.get("IpRanges", ())]
    return named, ranges + [each["PrefixListId"] for rule in rules for each in rule.get("PrefixListIds", ())]


def admits(
    groups: Iterable[Described],
    port: int | None,
    peer_groups: Collection[str],
    peer_cidrs: Collection[str],
    *,
    outbound: bool = False,
) -> bool:
    """Return whether security groups let TCP in from a peer, or out to it, which has an address in one of the `peer_cidrs`.

    A rule for a part of a range counts, since the address may be in it, and so does a prefix list.
    """
    named, ranges = allowed(groups, port, outbound=outbound)
    return not named.isdisjoint(peer_groups) or any(_overlap(each, cidr) for each in ranges for cidr in peer_cidrs)


def _is_for(rule: Described, port: int | None) -> bool:
    protocol = str(rule.get("IpProtocol", ""))
    if protocol == "-1":  # all of them
        return True
    if port is None or protocol not in ("tcp", "6"):
        return False
    first, last = rule.get("FromPort", -1), rule.get("ToPort", -1)
    return bool(first == -1 or first <= port <= last)


def _overlap(one: str, cidr: str) -> bool:
    is_list = one.startswith("pl-")  # its ranges are unknown here
    return is_list or ipaddress.IPv4Network(one, strict=False).overlaps(ipaddress.IPv4Network(cidr, strict=False))


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
