"""Account checks: read-only questions to AWS that show, before a job costs anything, whether it can start and read its data.

A check is a card, a `Check`, in the module of its subject, and its name in the table below. README's table and `--explain` are
derived from the table, and tests ask for a world that breaks each of its codes (tests/account_worlds/).
"""

from __future__ import annotations

from launcher.account import job
from launcher.account.check import Check
from launcher.account.iam import bucket_policies, caller, key_policies, keys, permissions, role
from launcher.account.network import endpoint_policies, package_index, s3_route, subnets
from launcher.account.quota import quotas, training_plans
from launcher.account.s3 import buckets, delivery, manifests, prefixes
from launcher.account.storage import disk, file_systems

CHECKS: tuple[Check, ...] = (
    *(buckets.CHECK, buckets.DIRECTORY_BUCKETS, prefixes.CHECK, prefixes.READABLE, manifests.CHECK, delivery.SHARES),
    *(delivery.COMPRESSION, delivery.LINE_ENDS),
    *(disk.CHECK, disk.CHECKPOINTS),
    *(job.ACCOUNT, job.NAME),
    *(
        caller.CHECK,
        role.CHECK,
        permissions.CHECK,
        bucket_policies.CHECK,
        keys.CHECK,
        key_policies.CHECK,
        keys.OF_BUCKETS,
    ),
    *(job.IMAGE, job.ARCHITECTURE),
    *(quotas.CHECK, quotas.IN_USE, training_plans.CHECK),
    *(subnets.CHECK, subnets.ZONES, subnets.SECURITY_GROUPS, s3_route.CHECK, s3_route.NETWORK_ACLS),
    *(endpoint_policies.CHECK, package_index.CHECK),
    *(file_systems.EFS, file_systems.EFS_MOUNT_TARGETS, file_systems.EFS_POLICY),
    *(file_systems.FSX, file_systems.FSX_NETWORK),
)
