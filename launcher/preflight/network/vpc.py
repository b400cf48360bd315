"""The job's own network as EC2 describes it, and whether something in it can be reached from the job.

Ids are asked for by filters: an answer then holds those that exist, where naming them gets a refusal that tells of one only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Severity, Subject
from launcher.preflight.network.security_groups import admits

SUBNETS: SpecPath = ("vpc_config", "subnets")
GROUPS: SpecPath = ("vpc_config", "security_group_ids")
Described = Mapping[str, Any]  # one resource in EC2's answer
CLOSED: tuple[Severity, str] = ("error", "Security groups let nothing through between the job and what it needs.")


def subnet_ids(subject: Subject) -> Sequence[str]:
    """The subnets that the request names."""
    return tuple(subject.draft.get("VpcConfig.Subnets") or ())


def group_ids(subject: Subject) -> Sequence[str]:
    """The security groups that the request names."""
    return tuple(subject.draft.get("VpcConfig.SecurityGroupIds") or ())


def subnets(subject: Subject) -> list[Described]:
    """The job's subnets, those that exist. Raises AwsError."""
    return described_subnets(subject, subnet_ids(subject))


def described_subnets(subject: Subject, ids: Iterable[str]) -> list[Described]:
    """Those of the subnets that exist. Raises AwsError."""
    return _described(subject, "describe_subnets", "Subnets", "subnet-id", ids)


def groups(subject: Subject) -> list[Described]:
    """The job's security groups, those that exist. Raises AwsError."""
    return described_groups(subject, group_ids(subject))


def described_groups(subject: Subject, ids: Iterable[str]) -> list[Described]:
    """Those of the security groups that exist, and that this account may see. Raises AwsError."""
    return _described(subject, "describe_security_groups", "SecurityGroups", "group-id", ids)


def vpc_id(subject: Subject) -> str | None:
    """The VPC of the job's subnets; None where they are of several, or unknown. Raises AwsError."""
    ids = {subnet["VpcId"] for subnet in subnets(subject)}
    return ids.pop() if len(ids) == 1 else None


def ranges(described: Iterable[Described]) -> list[str]:
    """The address ranges of subnets."""
    found = []
    for subnet in described:
        found += [subnet["CidrBlock"]] if subnet.get("CidrBlock") else []
        found += [
            each["Ipv6CidrBlock"] for each in subnet.get("Ipv6CidrBlockAssociationSet", ()) if "Ipv6CidrBlock" in each
        ]
    return found


def zone(subnet: Described) -> str:
    """Its availability zone's id, `euw1-az1`, which is the same in every account; the name where there is no id."""
    return str(subnet.get("AvailabilityZoneId") or subnet.get("AvailabilityZone"))


def closed(
    subject: Subject, what: str, its_groups: Collection[str], ports: Sequence[int], addresses: Sequence[str] = ()
) -> str | None:
    """Why the job cannot reach `what` on TCP `ports`, and what to do; None where it can, or where that is not known.

    `its_groups` are the ids of what protects it, `addresses` its own. Raises AwsError.
    """
    theirs, ours = described_groups(subject, its_groups), groups(subject)
    own = group_ids(subject)
    told = f"{ports[0]}" if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"
    if len(theirs) == len(set(its_groups)) and theirs:
        sources = ranges(subnets(subject))
        if not all(admits(theirs, port, own, sources) for port in ports):
            return (
                f"the security groups of {what} ({', '.join(its_groups)}) do not let the job in on TCP {told}; add an inbound"
                f" rule to {next(iter(its_groups), 'it')}: TCP {told} from {own[0]}"
            )
    targets = [f"{address}/32" for address in addresses if ":" not in address]
    is_known = len(ours) == len(set(own)) and bool(targets)
    if is_known and not all(admits(ours, port, its_groups, targets, outbound=True) for port in ports):
        return (
            f"the job's security groups ({', '.join(own)}) let nothing out to {what} on TCP {told}; add an outbound rule"
            f" to {own[0]}: TCP {told} to {next(iter(its_groups), 'it')}"
        )
    return None


def _described(subject: Subject, operation: str, member: str, name: str, ids: Iterable[str]) -> list[Described]:
    values = sorted(set(ids))
    if not values:
        return []
    answer = subject.ask("ec2", operation, Filters=[{"Name": name, "Values": values}])
    return list(answer.get(member, ()))
