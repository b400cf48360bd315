"""The job's own security groups."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.network.security_groups import admits
from launcher.preflight.network.vpc import GROUPS, group_ids, groups, ranges, subnets, vpc_id
from launcher.preflight.quota.machines import alternatives

_EPHEMERAL = (32768, 60999)  # the ends of Linux's ephemeral ports, which gloo and NCCL listen on


def _ask(subject: Subject) -> Iterator[Finding]:
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


CHECK = Check(
    "security groups",
    "Do the security groups exist, in the subnets' VPC, and let the job's hosts talk to each other?",
    _ask,
    errors={
        "security-group-missing": "There is no such security group in this account and region.",
        "security-group-vpc": "A security group works only in its own VPC.",
    },
    warnings={
        "hosts-cannot-talk": "Security groups block traffic between the job's hosts; ranks wait until they time out.",
    },
)
