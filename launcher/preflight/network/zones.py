"""The zones of the job's subnets, and whether they have its machines."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.asking import listed
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.network.vpc import SUBNETS, subnet_ids, subnets, zone
from launcher.preflight.quota.machines import Machines, alternatives


def zones_have_the_machines(subject: Subject) -> Iterator[Found]:
    """Whether a subnet lies in a zone that has the instance type; EC2 knows where there are any. Raises AwsError."""
    if not subnet_ids(subject):
        return
    zones = {zone(subnet): subnet["SubnetId"] for subnet in subnets(subject)}
    choices = [
        [each for each in choice if _is_elsewhere(subject, each, set(zones))] for choice in alternatives(subject.draft)
    ]
    for each in [each for choice in choices for each in choice] if all(choices) and zones else []:
        offered = listed(sorted(_offered(subject, each)))
        yield (
            SUBNETS,
            "zone-lacks-type",
            f"lie in {listed(sorted(zones))}, where EC2 has no {each.instance_type}; name a subnet in {offered}",
        )


def _is_elsewhere(subject: Subject, machines: Machines, zones: set[str]) -> bool:
    """Whether the region has the type, but none of the zones; a type that EC2 does not know may be SageMaker's still."""
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
    zones_have_the_machines,
    {
        "zone-lacks-type": (
            "warning",
            "EC2 has the instance type in other zones than the subnets'; there will be no capacity.",
        )
    },
)
