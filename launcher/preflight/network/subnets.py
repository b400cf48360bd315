"""The job's network: its subnets, the zones that have its machines, and its security groups.

SageMaker puts interfaces of the job's machines into one of the subnets. `s3_route` looks at the way from there to S3.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.asking import listed
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.network.vpc import SUBNETS, subnet_ids, subnets
from launcher.preflight.quota.machines import alternatives


def subnets_fit(subject: Subject) -> Iterator[Found]:
    """Whether the subnets exist, in one VPC, with addresses for all machines. Raises AwsError."""
    if not subnet_ids(subject):
        return
    known = {subnet["SubnetId"]: subnet for subnet in subnets(subject)}
    for index, name in enumerate(subnet_ids(subject)):
        if name not in known:
            here = subject.account.region
            yield (
                (*SUBNETS, index),
                "subnet-missing",
                f"{name} does not exist in {here}; name a subnet of the job's region",
            )
    vpcs = {name: subnet["VpcId"] for name, subnet in known.items()}
    if len(set(vpcs.values())) > 1:
        told = listed(f"{name} in {vpc}" for name, vpc in vpcs.items())
        yield SUBNETS, "subnets-of-several-vpcs", f"lie in several VPCs: {told}; name subnets of one"
    free = {name: int(subnet.get("AvailableIpAddressCount", 1 << 30)) for name, subnet in known.items()}
    need, why = _addresses(subject)
    if not free or max(free.values()) >= need:
        return
    told = listed(f"{name} has {count}" for name, count in free.items())
    if sum(free.values()) < need:
        yield (
            SUBNETS,
            "subnet-full",
            f"have too few free addresses: {told}, and the job needs {need} ({why}); name a larger subnet",
        )
    else:
        yield (
            SUBNETS,
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


CHECK = Check(
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
)
