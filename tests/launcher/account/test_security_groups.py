"""Which connections security groups allow."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.account.vpc import admits, allowed

OWN, SUBNET = ["sg-job"], ["10.0.1.0/24"]


def rule(protocol: str = "tcp", first: int | None = None, last: int | None = None, **peers: Any) -> dict[str, Any]:
    ports = {} if first is None else {"FromPort": first, "ToPort": first if last is None else last}
    return {"IpProtocol": protocol, **ports, **peers}


def of_group(group: str) -> dict[str, Any]:
    return {"UserIdGroupPairs": [{"GroupId": group, "UserId": "123456789012"}]}


def of_range(cidr: str) -> dict[str, Any]:
    return {"Ipv6Ranges": [{"CidrIpv6": cidr}]} if ":" in cidr else {"IpRanges": [{"CidrIp": cidr}]}


LETS_IN = {
    "the group on the port": rule("tcp", 2049, **of_group("sg-job")),
    "the group on a range of ports": rule("tcp", 2000, 3000, **of_group("sg-job")),
    "the group by everything": rule("-1", **of_group("sg-job")),
    "everything, with ports of -1": rule("-1", -1, -1, **of_group("sg-job")),
    "TCP by its number": rule("6", 2049, **of_group("sg-job")),
    "all of TCP": rule("tcp", 0, 65535, **of_group("sg-job")),
    "the subnet's range": rule("tcp", 2049, **of_range("10.0.1.0/24")),
    "a range around the subnet": rule("tcp", 2049, **of_range("10.0.0.0/16")),
    "any address": rule("tcp", 2049, **of_range("0.0.0.0/0")),
    "a part of the subnet, in which the job may be": rule("tcp", 2049, **of_range("10.0.1.128/25")),
    "a prefix list, whose ranges are unknown": rule("tcp", 2049, PrefixListIds=[{"PrefixListId": "pl-1"}]),
}
KEEPS_OUT = {
    "another port": rule("tcp", 2048, **of_group("sg-job")),
    "another protocol": rule("udp", 2049, **of_group("sg-job")),
    "ping": rule("icmp", -1, -1, **of_group("sg-job")),
    "another group": rule("tcp", 2049, **of_group("sg-other")),
    "another range": rule("tcp", 2049, **of_range("10.0.2.0/24")),
    "any address of the other IP version": rule("tcp", 2049, **of_range("::/0")),
    "no peer": rule("-1"),
}


@pytest.mark.parametrize("case", LETS_IN)
def test_rule_admits_the_peer(case: str) -> None:
    assert admits([{"IpPermissions": [LETS_IN[case]]}], 2049, OWN, SUBNET)


@pytest.mark.parametrize("case", KEEPS_OUT)
def test_rule_does_not_admit_the_peer(case: str) -> None:
    assert not admits([{"IpPermissions": [KEEPS_OUT[case]]}], 2049, OWN, SUBNET)


def test_one_open_rule_of_any_group_suffices() -> None:
    closed, open_ = {"IpPermissions": list(KEEPS_OUT.values())}, {"IpPermissions": [LETS_IN["any address"]]}
    assert not admits([closed, {}], 2049, OWN, SUBNET)
    assert admits([closed, open_], 2049, OWN, SUBNET)


def test_directions_have_separate_rules() -> None:
    groups = [{"IpPermissions": [rule("-1", **of_group("sg-job"))], "IpPermissionsEgress": []}]
    assert admits(groups, 988, OWN, [])
    assert not admits(groups, 988, OWN, [], outbound=True)


def test_rule_for_all_tcp_does_not_admit_all_traffic() -> None:
    of_itself = of_group("sg-job")
    assert admits([{"IpPermissions": [rule("-1", **of_itself)]}], None, OWN, [])
    assert not admits([{"IpPermissions": [rule("tcp", 0, 65535, **of_itself)]}], None, OWN, [])


def test_https_targets_are_ranges_and_prefix_lists() -> None:
    rules = [
        rule("tcp", 443, PrefixListIds=[{"PrefixListId": "pl-1"}]),
        rule("-1", **of_range("0.0.0.0/0")),
        rule("tcp", 80, **of_range("0.0.0.0/0")),
        rule("tcp", 443, **of_group("sg-job")),
    ]
    assert allowed([{"IpPermissionsEgress": rules}], 443, outbound=True) == ({"sg-job"}, ["0.0.0.0/0", "pl-1"])
