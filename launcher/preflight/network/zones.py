"""The availability zones of the job's subnets, and whether EC2 offers the instance type there."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import SUBNETS, described, subnets, zone
from launcher.preflight.quota.machines import Machines, alternatives


def _ask(subject: Subject) -> Iterator[Finding]:
    zones = {zone(subnet) for subnet in subnets(subject)}
    if not zones:
        return
    lacking = []
    for choice in alternatives(subject.draft):
        offers = [(each.instance_type, _offered(subject, each)) for each in choice]
        # SageMaker may have types that EC2 does not know, so a type that is offered nowhere is not reported.
        lacking.append([(name, offered) for name, offered in offers if offered and not offered & zones])
    for name, offered in [each for choice in lacking for each in choice] if all(lacking) else ():
        remedy = f"name a subnet in {joined(sorted(offered))}"
        yield SUBNETS, "zone-lacks-type", f"are in {joined(sorted(zones))}, where EC2 has no {name}; {remedy}"


def _offered(subject: Subject, machines: Machines) -> set[str]:
    """Return the IDs of the region's zones in which EC2 offers an instance type."""
    name = machines.instance_type.removeprefix("ml.")
    by_zone = {"LocationType": "availability-zone-id"}
    offerings = described(subject, "instance_type_offerings", "instance-type", [name], **by_zone)
    return {each["Location"] for each in offerings}


CHECK = Check(
    "zones",
    "Does EC2 offer the instance type in a zone of the subnets?",
    _ask,
    warnings={
        "zone-lacks-type": "EC2 offers the instance type only in other zones, so there will be no capacity.",
    },
)
