"""The job's network as EC2 describes it, which connections its security groups allow, and whether the job can reach something.

IDs are passed as filters: the answer then contains those that exist, while a call that names them fails at the first missing one.
Rules of security groups only ever allow, so several groups allow what any of them does. A rule that cannot be judged alone, such as
a prefix list, counts as allowing: a check that reports `closed` must be right.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from launcher.account.check import Subject
from launcher.errors import SpecPath

SUBNETS: SpecPath = ("vpc_config", "subnets")
GROUPS: SpecPath = ("vpc_config", "security_group_ids")
Described = Mapping[str, Any]  # one resource in an answer of EC2


def described(subject: Subject, kind: str, name: str, values: Iterable[str], **more: Any) -> list[Described]:
    """Return what EC2 describes; nothing if there are no values to filter by. Raises AwsError.

    `kind` is the resources in the plural, such as `route_tables` for DescribeRouteTables, `name` that of a filter, such as
    `vpc-id`; values of no resource are ignored.
    """
    filters = [{"Name": name, "Values": sorted(set(values))}]
    if not filters[0]["Values"]:
        return []
    parameter = "Filter" if kind == "nat_gateways" else "Filters"
    answer = subject.ask("ec2", f"describe_{kind}", **{parameter: filters}, **more)
    return list(answer.get(kind.title().replace("_", ""), ()))


def subnet_ids(subject: Subject) -> Sequence[str]:
    """Return the subnets that the request names."""
    return tuple(subject.draft.get("VpcConfig.Subnets") or ())


def group_ids(subject: Subject) -> Sequence[str]:
    """Return the security groups that the request names."""
    return tuple(subject.draft.get("VpcConfig.SecurityGroupIds") or ())


def subnets(subject: Subject) -> list[Described]:
    """Return those of the job's subnets that exist. Raises AwsError."""
    return described(subject, "subnets", "subnet-id", subnet_ids(subject))


def groups(subject: Subject) -> list[Described]:
    """Return those of the job's security groups that exist. Raises AwsError."""
    return described(subject, "security_groups", "group-id", group_ids(subject))


def vpc_id(subject: Subject) -> str | None:
    """Return the VPC of the job's subnets; None if they are in several, or unknown. Raises AwsError."""
    ids = {subnet["VpcId"] for subnet in subnets(subject)}
    return ids.pop() if len(ids) == 1 else None


def ranges(subnets: Iterable[Described]) -> list[str]:
    """Return the address ranges of subnets."""
    found = []
    for subnet in subnets:
        sixth = [each.get("Ipv6CidrBlock") for each in subnet.get("Ipv6CidrBlockAssociationSet", ())]
        found += [cidr for cidr in (subnet.get("CidrBlock"), *sixth) if cidr]
    return found


def zone(subnet: Described) -> str:
    """Return the ID of a subnet's zone, such as `euw1-az1`, which is the same in every account; its name if it has no ID."""
    return str(subnet.get("AvailabilityZoneId") or subnet.get("AvailabilityZone"))


def closed(
    subject: Subject, what: str, its_groups: Collection[str], ports: Sequence[int], addresses: Sequence[str] = ()
) -> str | None:
    """Return why the job cannot reach `what`, and what to do; None if it can, or if that is not known. Raises AwsError.

    It can if the job's security groups and those that protect the resource have its TCP ports open.
    """
    theirs, ours = described(subject, "security_groups", "group-id", its_groups), groups(subject)
    own = group_ids(subject)
    shown = f"{ports[0]}" if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"
    if len(theirs) == len(set(its_groups)) and theirs:
        sources = ranges(subnets(subject))
        if not all(admits(theirs, port, own, sources) for port in ports):
            return (
                f"the security groups of {what} ({', '.join(its_groups)}) do not let the job in on TCP {shown}; add an inbound"
                f" rule to {next(iter(its_groups), 'it')}: TCP {shown} from {own[0]}"
            )
    targets = [f"{address}/32" for address in addresses if ":" not in address]
    is_known = len(ours) == len(set(own)) and bool(targets)
    if is_known and not all(admits(ours, port, its_groups, targets, outbound=True) for port in ports):
        return (
            f"the job's security groups ({', '.join(own)}) do not let the job out to {what} on TCP {shown}; add an outbound rule"
            f" to {own[0]}: TCP {shown} to {next(iter(its_groups), 'it')}"
        )
    return None


_TCP = ("tcp", "6")
_ALL = "-1"


def admits(
    groups: Iterable[Mapping[str, Any]],
    port: int | None,
    peer_groups: Collection[str],
    peer_cidrs: Collection[str] = (),
    *,
    outbound: bool = False,
) -> bool:
    """Return whether security groups, as DescribeSecurityGroups returns them, let TCP in from a peer, or out to it.

    No port means all protocols and ports. `peer_cidrs` contain the peer's address: a rule for a part of a range counts, since the
    address may be in it.
    """
    direction = "IpPermissionsEgress" if outbound else "IpPermissions"
    return any(
        _is_for(rule, port) and _names(rule, peer_groups, peer_cidrs)
        for group in groups
        for rule in group.get(direction, ())
    )


def egress_targets(groups: Iterable[Mapping[str, Any]], port: int) -> list[str]:
    """Return where TCP on `port` may go: CIDR ranges and prefix lists, without other groups."""
    rules = [rule for group in groups for rule in group.get("IpPermissionsEgress", ()) if _is_for(rule, port)]
    lists = [str(each.get("PrefixListId")) for rule in rules for each in rule.get("PrefixListIds", ())]
    return [*(cidr for rule in rules for cidr in _cidrs(rule)), *lists]


def _is_for(rule: Mapping[str, Any], port: int | None) -> bool:
    protocol = str(rule.get("IpProtocol", ""))
    if protocol == _ALL:
        return True
    if port is None or protocol not in _TCP:
        return False
    first, last = rule.get("FromPort", -1), rule.get("ToPort", -1)
    return bool(first == -1 or first <= port <= last)


def _names(rule: Mapping[str, Any], groups: Collection[str], cidrs: Collection[str]) -> bool:
    if rule.get("PrefixListIds"):
        return True  # its ranges are unknown here
    if any(pair.get("GroupId") in groups for pair in rule.get("UserIdGroupPairs", ())):
        return True
    return any(_overlap(allowed, cidr) for allowed in _cidrs(rule) for cidr in cidrs)


def _cidrs(rule: Mapping[str, Any]) -> list[str]:
    fourth = [each["CidrIp"] for each in rule.get("IpRanges", ()) if "CidrIp" in each]
    return fourth + [each["CidrIpv6"] for each in rule.get("Ipv6Ranges", ()) if "CidrIpv6" in each]


def _overlap(one: str, other: str) -> bool:
    first, second = (ipaddress.ip_network(cidr, strict=False) for cidr in (one, other))
    if isinstance(first, ipaddress.IPv4Network):
        return isinstance(second, ipaddress.IPv4Network) and first.overlaps(second)
    return isinstance(second, ipaddress.IPv6Network) and first.overlaps(second)
