"""The job's network: its subnets, the zones that have its machines, and its security groups.

SageMaker puts interfaces of the job's machines into one of the subnets. `s3_route` looks at the way from there to S3.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.asking import listed
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.network.security_groups import admits
from launcher.preflight.network.vpc import group_ids, groups, ranges, subnet_ids, subnets, vpc_id, zone
from launcher.preflight.quota.machines import Machines, alternatives

_SUBNETS: SpecPath = ("vpc_config", "subnets")
_GROUPS: SpecPath = ("vpc_config", "security_group_ids")
_FOR_TALK = (32768, 60999)  # Linux's ephemeral ports, which gloo and NCCL listen on; a rule for both ends is for all


def subnets_fit(subject: Subject) -> Iterator[Found]:
    """Whether the subnets exist, in one VPC, with addresses for all machines. Raises AwsError."""
    if not subnet_ids(subject):
        return
    known = {subnet["SubnetId"]: subnet for subnet in subnets(subject)}
    for index, name in enumerate(subnet_ids(subject)):
        if name not in known:
            here = subject.account.region
            yield (
                (*_SUBNETS, index),
                "subnet-missing",
                f"{name} does not exist in {here}; name a subnet of the job's region",
            )
    vpcs = {name: subnet["VpcId"] for name, subnet in known.items()}
    if len(set(vpcs.values())) > 1:
        told = listed(f"{name} in {vpc}" for name, vpc in vpcs.items())
        yield _SUBNETS, "subnets-of-several-vpcs", f"lie in several VPCs: {told}; name subnets of one"
    free = {name: int(subnet.get("AvailableIpAddressCount", 1 << 30)) for name, subnet in known.items()}
    need, why = _addresses(subject)
    if not free or max(free.values()) >= need:
        return
    told = listed(f"{name} has {count}" for name, count in free.items())
    if sum(free.values()) < need:
        yield (
            _SUBNETS,
            "subnet-full",
            f"have too few free addresses: {told}, and the job needs {need} ({why}); name a larger subnet",
        )
    else:
        yield (
            _SUBNETS,
            "subnet-tight",
            f"none has {need} free addresses ({why}): {told}; all machines may not fit into one zone",
        )


def _addresses(subject: Subject) -> tuple[int, str]:
    """The free addresses that the job needs at least, and how they add up."""
    sums = []
    for choice in alternatives(subject.draft):
        told = " + ".join(f"{each.instances} x {each.addresses // each.instances}" for each in choice if each.instances)
        sums.append((sum(each.addresses for each in choice), told))
    return min(sums, default=(0, ""))


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
            _SUBNETS,
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


def groups_fit(subject: Subject) -> Iterator[Found]:
    """Whether the security groups exist, in the subnets' VPC, and let several hosts talk. Raises AwsError."""
    own = group_ids(subject)
    if not own:
        return
    known = {group["GroupId"]: group for group in groups(subject)}
    vpc = vpc_id(subject)
    for index, name in enumerate(own):
        path = (*_GROUPS, index)
        if name not in known:
            here = subject.account.region
            yield (
                path,
                "security-group-missing",
                f"{name} does not exist in {here}; name a group of {vpc or 'the VPC of the subnets'}",
            )
        elif vpc is not None and known[name].get("VpcId") not in (vpc, None) and not _is_lent(subject, name, vpc):
            its = known[name]["VpcId"]
            yield path, "security-group-vpc", f"{name} is of {its}, but the subnets are in {vpc}; name a group of {vpc}"
    if len(known) == len(set(own)):
        yield from _hosts_talk(subject)


def _is_lent(subject: Subject, group: str, vpc: str) -> bool:
    """Whether a group of another VPC is associated with this one; where that cannot be asked, it is not."""
    filters = [{"Name": "group-id", "Values": [group]}, {"Name": "vpc-id", "Values": [vpc]}]
    try:
        answer = subject.ask("ec2", "describe_security_group_vpc_associations", Filters=filters)
    except AwsError as error:
        subject.could_not_ask(_GROUPS, error)
        return False
    return any(each.get("State") == "associated" for each in answer.get("SecurityGroupVpcAssociations", ()))


def _hosts_talk(subject: Subject) -> Iterator[Found]:
    """Several hosts talk to each other only where their groups let themselves in, and out to themselves."""
    most = max(alternatives(subject.draft), key=lambda choice: sum(each.instances for each in choice), default=[])
    if sum(each.instances for each in most) < 2:
        return
    own, members = group_ids(subject), groups(subject)
    cidrs = ranges(subnets(subject))
    has_efa = any(each.has_efa for each in most)
    ports: tuple[int | None, ...] = (None,) if has_efa else _FOR_TALK
    what = "all traffic, as EFA needs," if has_efa else "TCP"
    for outbound, direction in ((False, "in from"), (True, "out to")):
        if not all(admits(members, port, own, cidrs, outbound=outbound) for port in ports):
            rule = (
                f"an {'out' if outbound else 'in'}bound rule to {own[0]}: all traffic {direction.split()[1]} {own[0]}"
            )
            yield (
                _GROUPS,
                "hosts-cannot-talk",
                f"do not let {what} {direction} the job's other hosts, so distributed training will hang; add {rule}",
            )


CHECKS = (
    Check(
        "subnets",
        subnets_fit,
        {
            "subnet-missing": ("error", "There is no such subnet in this account and region."),
            "subnets-of-several-vpcs": ("error", "All subnets of a job are of one VPC."),
            "subnet-full": (
                "error",
                "Each machine takes 2 addresses of a subnet, 5 with EFA; there are not as many left.",
            ),
            "subnet-tight": (
                "warning",
                "No subnet has the addresses for all of the job's machines, though all together do.",
            ),
        },
    ),
    Check(
        "zones",
        zones_have_the_machines,
        {
            "zone-lacks-type": (
                "warning",
                "EC2 has the instance type in other zones than the subnets'; there will be no capacity.",
            )
        },
    ),
    Check(
        "security groups",
        groups_fit,
        {
            "security-group-missing": ("error", "There is no such security group in this account and region."),
            "security-group-vpc": ("error", "A security group serves the VPC that it is of."),
            "hosts-cannot-talk": (
                "warning",
                "Security groups keep the job's hosts from each other; ranks wait until they give up.",
            ),
        },
    ),
)
