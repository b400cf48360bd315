"""Which connections security groups allow.

Rules only ever allow, so several groups allow what any of them does. A rule that cannot be judged alone, such as a prefix
list, counts as allowing: a check that reports `closed` must be right.
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
    """Return whether security groups let TCP in from a peer, or out to it.

    Args:
        groups: The groups, as DescribeSecurityGroups returns them.
        port: The port; None means all protocols and ports.
        peer_groups: IDs of the peer's groups.
        peer_cidrs: Ranges that contain the peer's address. A rule for a part of a range counts, since the address may be in it.
        outbound: Out to the peer rather than in from it.
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
