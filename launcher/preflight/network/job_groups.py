"""The job's own security groups."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.network.security_groups import admits
from launcher.preflight.network.vpc import GROUPS, group_ids, groups, ranges, subnets, vpc_id
from launcher.preflight.quota.machines import alternatives

_FOR_TALK = (32768, 60999)  # Linux's ephemeral ports, which gloo and NCCL listen on; a rule for both ends is for all


def groups_fit(subject: Subject) -> Iterator[Found]:
    """Whether the security groups exist, in the subnets' VPC, and let several hosts talk. Raises AwsError."""
    own = group_ids(subject)
    if not own:
        return
    known = {group["GroupId"]: group for group in groups(subject)}
    vpc = vpc_id(subject)
    for index, name in enumerate(own):
        path = (*GROUPS, index)
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
        subject.could_not_ask(GROUPS, error)
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
                GROUPS,
                "hosts-cannot-talk",
                f"do not let {what} {direction} the job's other hosts, so distributed training will hang; add {rule}",
            )


CHECK = Check(
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
)
