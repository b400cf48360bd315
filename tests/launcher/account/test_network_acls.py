"""Which connections network ACLs surely block."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.account.network.s3_route import lets_through

ANYWHERE = "0.0.0.0/0"


def entry(number: int, action: str, first: int, last: int, cidr: str = ANYWHERE, **more: Any) -> dict[str, Any]:
    ports = {"From": first, "To": last}
    return {"RuleNumber": number, "RuleAction": action, "Protocol": "6", "PortRange": ports, "CidrBlock": cidr} | more


ALL = {"RuleAction": "deny", "RuleNumber": 32767, "Protocol": "-1", "CidrBlock": ANYWHERE, "Egress": False}


@pytest.mark.parametrize(
    ("entries", "lets"),
    [
        ([ALL], False),
        ([entry(100, "allow", 443, 443), ALL], True),
        ([entry(100, "allow", 80, 80), ALL], False),
        ([ALL | {"RuleNumber": 50}, entry(100, "allow", 443, 443)], False),
        ([entry(50, "deny", 400, 450), entry(100, "allow", 443, 443)], False),
        ([entry(50, "deny", 400, 450, "198.51.100.0/24"), entry(100, "allow", 443, 443)], True),
        ([entry(100, "allow", 443, 443, "52.216.0.0/15"), ALL], True),
        ([entry(100, "allow", 443, 443, "10.0.0.0/16"), ALL], False),
        ([entry(100, "allow", 443, 443, Protocol="17"), ALL], False),
        ([entry(100, "allow", 443, 443, Egress=True), ALL], False),
        ([{"RuleNumber": 1, "RuleAction": "allow", "Protocol": "6", "Ipv6CidrBlock": "::/0"}, ALL], True),
    ],
)
def test_acl_blocks_only_what_it_surely_blocks(entries: list[dict[str, Any]], lets: bool) -> None:
    assert lets_through(entries, False, (443, 443), private=False) is lets


def test_acl_that_leaves_some_ports_lets_answers_in() -> None:
    some = [entry(10, "deny", 1024, 5000), entry(20, "deny", 6001, 65535), entry(30, "allow", 1024, 65535), ALL]
    assert lets_through(some, False, (1024, 65535), private=False)
    assert not lets_through([some[0], entry(11, "deny", 5001, 65535), *some[2:]], False, (1024, 65535), private=False)
    assert lets_through([entry(30, "allow", 1024, 65535, "10.0.0.0/8"), ALL], False, (1024, 65535), private=True)
