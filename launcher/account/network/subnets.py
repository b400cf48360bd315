"""The job's subnets, in one of which SageMaker creates interfaces for its machines; their zones; and its security groups."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.network.vpc import (
    GROUPS,
    SUBNETS,
    admits,
    described,
    group_ids,
    groups,
    ranges,
    subnet_ids,
    subnets,
    vpc_id,
    zone,
)
from launcher.account.quota.machines import Machines, alternatives
from launcher.aws.account import AwsError


def _ask_subnets(subject: Subject) -> Iterator[Finding]:
    known = {subnet["SubnetId"]: subnet for subnet in subnets(subject)}
    for index, name in enumerate(subnet_ids(subject)):
        if name not in known:
            message = f"{name} does not exist in {subject.account.region}; name a subnet in the job's region"
            yield (*SUBNETS, index), "subnet-missing", message
    vpcs = {name: subnet["VpcId"] for name, subnet in known.items()}
    if len(set(vpcs.values())) > 1:
        shown = joined(f"{name} in {vpc}" for name, vpc in vpcs.items())
        yield SUBNETS, "subnets-of-several-vpcs", f"are in several VPCs: {shown}; name subnets of one VPC"
    free = {name: int(subnet.get("AvailableIpAddressCount", 1 << 30)) for name, subnet in known.items()}
    need, why = _addresses(subject)
    if not free or max(free.values()) >= need:
        return
    shown = joined(f"{name} has {count}" for name, count in free.items())
    if sum(free.values()) < need:
        message = f"have too few free addresses: {shown}, and the job needs {need} ({why}); name a larger subnet"
        yield SUBNETS, "subnet-full", message
    else:
        remedy = "the machines may not fit into one zone, so name a larger subnet"
        yield SUBNETS, "subnet-tight", f"none has {need} free addresses ({why}): {shown}; {remedy}"


def _addresses(subject: Subject) -> tuple[int, str]:
    """Return the free addresses that the job needs at least, and how they add up."""
    sums = []
    for choice in alternatives(subject.draft):
        words = [f"{each.instances} x {each.addresses // each.instances}" for each in choice if each.instances]
        sums.append((sum(each.addresses for each in choice), " + ".join(words)))
    return min(sums, default=(0, ""))


CHECK = Check("subnets", _ask_subnets)


def _ask_zones(subject: Subject) -> Iterator[Finding]:
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


ZONES = Check("zones", _ask_zones)


_EPHEMERAL = (32768, 60999)  # the ends of Linux's ephemeral ports, which gloo and NCCL listen on


def _ask_groups(subject: Subject) -> Iterator[Finding]:
    own = group_ids(subject)
    if not own:
        return
    known = {group["GroupId"]: group for group in groups(subject)}
    vpc = vpc_id(subject)
    for index, name in enumerate(own):
        path = (*GROUPS, index)
        if name not in known:
            where = f"does not exist in {subject.account.region}"
            yield path, "security-group-missing", f"{name} {where}; name a group in {vpc or 'the VPC of the subnets'}"
            continue
        its = known[name].get("VpcId")
        if vpc is not None and its not in (vpc, None) and not _is_associated(subject, name, vpc):
            yield path, "security-group-vpc", f"{name} is in {its}, but the subnets are in {vpc}; name a group in {vpc}"
    if len(known) == len(set(own)):
        yield from _hosts_talk(subject)


def _is_associated(subject: Subject, group: str, vpc: str) -> bool:
    """Return whether a group of another VPC is associated with this one; not if you may not ask."""
    filters = [{"Name": "group-id", "Values": [group]}, {"Name": "vpc-id", "Values": [vpc]}]
    try:
        answer = subject.ask("ec2", "describe_security_group_vpc_associations", Filters=filters)
    except AwsError as error:
        subject.could_not_ask(GROUPS, error)
        return False
    return any(each.get("State") == "associated" for each in answer.get("SecurityGroupVpcAssociations", ()))


def _hosts_talk(subject: Subject) -> Iterator[Finding]:
    """Find groups that do not let the job's hosts in from, or out to, each other."""
    most = max(alternatives(subject.draft), key=lambda choice: sum(each.instances for each in choice), default=[])
    if sum(each.instances for each in most) < 2:
        return
    own, members = group_ids(subject), groups(subject)
    cidrs = ranges(subnets(subject))
    has_efa = any(each.has_efa for each in most)
    ports: tuple[int | None, ...] = (None,) if has_efa else _EPHEMERAL
    what = "all traffic, as EFA needs," if has_efa else "TCP"
    for way, peer in (("in", "from"), ("out", "to")):
        if not all(admits(members, port, own, cidrs, outbound=way == "out") for port in ports):
            rule = f"an {way}bound rule to {own[0]}: all traffic {peer} {own[0]}"
            wrong = f"do not let {what} {way} {peer} the job's other hosts, so distributed training will hang"
            yield GROUPS, "hosts-cannot-talk", f"{wrong}; add {rule}"


SECURITY_GROUPS = Check("security groups", _ask_groups)
