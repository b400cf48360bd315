"""Preflight: read-only questions to AWS that tell, before a job costs anything, whether it can start and read its data.

A new check is one file with a `CHECKS` tuple and one name in the table below. All run at the same time, within a time limit;
one that could not be asked says so and blocks nothing.
"""

from __future__ import annotations

from launcher.preflight import (
    archives,
    bucket_policies,
    buckets,
    checkpoints,
    compression,
    data_keys,
    directory_buckets,
    disk,
    efs,
    fsx,
    image,
    keys,
    line_ends,
    manifests,
    name,
    network,
    network_acls,
    permissions,
    prefixes,
    quotas,
    role,
    s3_route,
    shares,
    training_plans,
)
from launcher.preflight.check import Check

CHECKS: tuple[Check, ...] = (
    *buckets.CHECKS,
    *directory_buckets.CHECKS,
    *prefixes.CHECKS,
    *archives.CHECKS,
    *manifests.CHECKS,
    *shares.CHECKS,
    *compression.CHECKS,
    *line_ends.CHECKS,
    *disk.CHECKS,
    *checkpoints.CHECKS,
    *name.CHECKS,
    *role.CHECKS,
    *permissions.CHECKS,
    *bucket_policies.CHECKS,
    *keys.CHECKS,
    *data_keys.CHECKS,
    *image.CHECKS,
    *quotas.CHECKS,
    *training_plans.CHECKS,
    *network.CHECKS,
    *s3_route.CHECKS,
    *network_acls.CHECKS,
    *efs.CHECKS,
    *fsx.CHECKS,
)
