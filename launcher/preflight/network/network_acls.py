"""Network ACLs of the job's subnets: whether they let HTTPS out to S3, and its answers in.

ACLs are stateless, so answers need their own inbound rule, on the ports from which Linux connects. Only what surely lets
nothing through counts: rules are tried by number, and the first match decides. A rule for a part of the addresses may be the
right part. But the addresses of S3 are public, so rules for private ranges help only with an endpoint inside the VPC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.s3_route import endpoints_inside, is_private
from launcher.preflight.network.vpc import SUBNETS, Described, described, subnet_ids, subnets, vpc_id

_ALL = "-1"
_TCP = "6"
_HTTPS = (443, 443)
_ANSWERS = (1024, 65535)  # the client ports of any operating system
_NEEDED = ((True, _HTTPS, "TCP 443 out"), (False, _ANSWERS, "answers in (TCP 1024-65535)"))


def _ask(subject: Subject) -> Iterator[Finding]:
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
    """Return whether an ACL's entries may let TCP through.

    Args:
        entries: The entries, as DescribeNetworkAcls returns them.
        is_out: Outbound rather than inbound.
        ports: First and last port; one open port is enough.
        private: Whether rules for private addresses count.
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


CHECK = Check(
    "network ACLs",
    "Do the network ACLs let HTTPS out to S3, and its answers in?",
    _ask,
    errors={"network-acl-closed": "The network ACLs of all the job's subnets block S3."},
    warnings={
        "network-acl-closed-in-some": "The network ACL of one subnet, in which the job may be placed, blocks S3.",
    },
)
