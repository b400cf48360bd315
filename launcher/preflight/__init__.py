"""Preflight: read-only questions to AWS that tell, before a job costs anything, whether it can start and read its data.

A new check is one file with a `CHECKS` tuple and one name in the table below. All run at the same time, within a time limit;
one that could not be asked says so and blocks nothing.
"""

from __future__ import annotations

from launcher.preflight import image, name
from launcher.preflight.check import Check
from launcher.preflight.iam import bucket_policies, data_keys, keys, permissions, role
from launcher.preflight.network import network_acls, s3_route
from launcher.preflight.network import subnets as network
from launcher.preflight.quota import quotas, training_plans
from launcher.preflight.s3 import (
    archives,
    buckets,
    checkpoints,
    compression,
    directory_buckets,
    line_ends,
    manifests,
    prefixes,
    shares,
)
from launcher.preflight.storage import disk, efs, fsx

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
