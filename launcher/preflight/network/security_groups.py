"""Security groups: who gets through.

Rules only ever allow, so several groups let through what any of them does. What cannot be judged from the rules alone, such
as a prefix list, is taken to let through: a check that says `closed` must be right.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any

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
    """Whether `groups`, as DescribeSecurityGroups has them, let TCP in on `port` from a peer, or out to it.

    The peer is in the groups `peer_groups` (ids), and its address in one of the ranges `peer_cidrs`. A rule for a part of such a
    range counts, since the address may lie in it. `port` None asks for everything: all protocols and ports.
    """
    direction = "IpPermissionsEgress" if outbound else "IpPermissions"
    return any(
        _is_for(rule, port) and _names(rule, peer_groups, peer_cidrs)
        for group in groups
        for rule in group.get(direction, ())
    )


def leaves_for(groups: Iterable[Mapping[str, Any]], port: int) -> list[str]:
    """Where TCP on `port` may go: CIDR ranges and prefix lists, without other groups."""
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
        return True  # its ranges are another question
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
