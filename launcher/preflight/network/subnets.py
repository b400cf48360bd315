"""The job's subnets. SageMaker creates interfaces for the job's machines in one of them."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.network.vpc import SUBNETS, subnet_ids, subnets
from launcher.preflight.quota.machines import alternatives


def _ask(subject: Subject) -> Iterator[Finding]:
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


CHECK = Check(
    "subnets",
    "Do the subnets exist, in one VPC, with addresses for all machines?",
    _ask,
    errors={
        "subnet-missing": "There is no such subnet in this account and region.",
        "subnets-of-several-vpcs": "All subnets of a job must be in one VPC.",
        "subnet-full": "Each machine takes 2 addresses of a subnet, 5 with EFA; too few are free.",
    },
    warnings={"subnet-tight": "No single subnet has addresses for all of the job's machines."},
)
