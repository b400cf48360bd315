"""The availability zones of the job's subnets, and whether EC2 offers the instance type there."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import SUBNETS, subnet_ids, subnets, zone
from launcher.preflight.quota.machines import Machines, alternatives


def zones_have_the_machines(subject: Subject) -> Iterator[Finding]:
    """Compare the zones of the subnets with those that EC2 offers the type in. Raises AwsError."""
    if not subnet_ids(subject):
        return
    zones = {zone(subnet): subnet["SubnetId"] for subnet in subnets(subject)}
    choices = [
        [each for each in choice if _is_elsewhere(subject, each, set(zones))] for choice in alternatives(subject.draft)
    ]
    for each in [each for choice in choices for each in choice] if all(choices) and zones else []:
        offered = joined(sorted(_offered(subject, each)))
        yield (
            SUBNETS,
            "zone-lacks-type",
            f"are in {joined(sorted(zones))}, where EC2 has no {each.instance_type}; name a subnet in {offered}",
        )


def _is_elsewhere(subject: Subject, machines: Machines, zones: set[str]) -> bool:
    """Whether the region has the type, but none of the zones; SageMaker may have types that EC2 does not know."""
    offered = _offered(subject, machines)
    return bool(offered) and not offered & zones


def _offered(subject: Subject, machines: Machines) -> set[str]:
    answer = subject.ask(
        "ec2",
        "describe_instance_type_offerings",
        LocationType="availability-zone-id",
        Filters=[{"Name": "instance-type", "Values": [machines.instance_type.removeprefix("ml.")]}],
    )
    return {each["Location"] for each in answer.get("InstanceTypeOfferings", ())}


CHECK = Check(
    "zones",
    "Does EC2 offer the instance type in a zone of the subnets?",
    zones_have_the_machines,
    {
        "zone-lacks-type": (
            "warning",
            "EC2 offers the instance type only in other zones, so there will be no capacity.",
        )
    },
)
