"""Network ACLs of the job's subnets: whether they let HTTPS out to S3, and its answers in.

ACLs are stateless, so answers need their own inbound rule, on the ports from which Linux connects. Only what surely lets
nothing through counts: rules are tried by number, and the first match decides. A rule for a part of the addresses may be the
right part. But the addresses of S3 are public, so rules for private ranges help only with an endpoint inside the VPC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.s3_route import is_for_s3, is_private
from launcher.preflight.network.vpc import SUBNETS, subnet_ids, subnets, vpc_id

_TCP = ("-1", "6")
_HTTPS = (443, 443)
_ANSWERS = (1024, 65535)  # the client ports of any operating system


def acls_let_s3_through(subject: Subject) -> Iterator[Finding]:
    """Ask for the ACL of each subnet. Raises AwsError."""
    vpc = vpc_id(subject) if subnet_ids(subject) else None
    if vpc is None:
        return
    filters = [{"Name": "association.subnet-id", "Values": sorted(set(subnet_ids(subject)))}]
    acls = subject.ask("ec2", "describe_network_acls", Filters=filters).get("NetworkAcls", ())
    of_vpc = [{"Name": "vpc-id", "Values": [vpc]}]
    endpoints = subject.ask("ec2", "describe_vpc_endpoints", Filters=of_vpc).get("VpcEndpoints", ())
    inside = [each for each in endpoints if is_for_s3(each) and each.get("VpcEndpointType") == "Interface"]
    beside = {name for each in inside for name in each.get("SubnetIds", ())}  # ACLs do not apply within a subnet
    closed: dict[str, list[str]] = {}
    for acl in acls:
        ways = [
            words
            for is_out, ports, words in (
                (True, _HTTPS, "TCP 443 out"),
                (False, _ANSWERS, "answers in (TCP 1024-65535)"),
            )
            if not lets_through(acl.get("Entries", ()), is_out, ports, private=bool(inside))
        ]
        names = {str(each.get("SubnetId")) for each in acl.get("Associations", ())} & {*subnet_ids(subject)} - beside
        if ways and names:
            closed[f"{acl['NetworkAclId']} does not let {' or '.join(ways)}"] = sorted(names)
    if closed:
        count = sum(map(len, closed.values()))
        code = "network-acl-closed" if count == len(subnets(subject)) else "network-acl-closed-in-some"
        shown = joined(f"{words} for {joined(names)}" for words, names in closed.items())
        remedy = "allow TCP 443 out to 0.0.0.0/0 and TCP 1024-65535 in from 0.0.0.0/0"
        yield SUBNETS, code, f"the network ACL {shown}, so the job cannot reach S3; {remedy}"


def lets_through(entries: Any, is_out: bool, ports: tuple[int, int], *, private: bool) -> bool:
    """Whether an ACL's entries may let TCP through.

    Args:
        entries: The entries, as DescribeNetworkAcls returns them.
        is_out: Outbound rather than inbound.
        ports: First and last port; one open port is enough.
        private: Whether rules for private addresses count.
    """
    rules = [each for each in entries if bool(each.get("Egress")) == is_out and str(each.get("Protocol")) in _TCP]
    denied: list[tuple[int, int]] = []  # ports that are denied to all of IPv4
    for rule in sorted(rules, key=lambda each: int(each.get("RuleNumber", 0))):
        first, last = _ports(rule)
        if rule.get("RuleAction") == "deny":
            if rule.get("CidrBlock") == "0.0.0.0/0":
                denied.append((first, last))
        elif (private or not _is_private(rule)) and _is_left(max(first, ports[0]), min(last, ports[1]), denied):
            return True
    return False


def _ports(rule: Mapping[str, Any]) -> tuple[int, int]:
    ports = rule.get("PortRange") or {}
    return (0, 65535) if str(rule.get("Protocol")) == "-1" or not ports else (int(ports["From"]), int(ports["To"]))


def _is_left(first: int, last: int, denied: list[tuple[int, int]]) -> bool:
    """Whether any port of a range is not denied by an earlier rule."""
    at = first
    for start, end in sorted(denied):
        if start <= at <= end:
            at = end + 1
    return at <= last


def _is_private(rule: Mapping[str, Any]) -> bool:
    return is_private(str(rule.get("CidrBlock", "")))  # not IPv6, since S3 has public IPv6 addresses


CHECK = Check(
    "network ACLs",
    "Do the network ACLs let HTTPS out to S3, and its answers in?",
    acls_let_s3_through,
    {
        "network-acl-closed": ("error", "The network ACLs of all the job's subnets block S3."),
        "network-acl-closed-in-some": (
            "warning",
            "The network ACL of one subnet, in which the job may be placed, blocks S3.",
        ),
    },
)
