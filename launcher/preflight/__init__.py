"""Preflight: read-only questions to AWS whose answers show, before a job costs anything, whether it can start and read its data.

A check is one file that defines `CHECK`, and one line of the table below. README's table and `--explain` are derived from the
table, and tests ask for a world that breaks each of its codes (tests/preflight_worlds/).
"""

from __future__ import annotations

from launcher.preflight import caller, image, job_name
from launcher.preflight.check import Check
from launcher.preflight.iam import bucket_policies, data_keys, keys, permissions, role
from launcher.preflight.network import job_groups, network_acls, s3_route, subnets, zones
from launcher.preflight.quota import in_use, quotas, training_plans
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
from launcher.preflight.storage import disk, efs, fsx, fsx_network, mount_targets

CHECKS: tuple[Check, ...] = (
    buckets.CHECK,
    directory_buckets.CHECK,
    prefixes.CHECK,
    archives.CHECK,
    manifests.CHECK,
    shares.CHECK,
    compression.CHECK,
    line_ends.CHECK,
    disk.CHECK,
    checkpoints.CHECK,
    caller.CHECK,
    job_name.CHECK,
    role.CHECK,
    permissions.CHECK,
    bucket_policies.CHECK,
    keys.CHECK,
    data_keys.CHECK,
    image.CHECK,
    quotas.CHECK,
    in_use.CHECK,
    training_plans.CHECK,
    subnets.CHECK,
    zones.CHECK,
    job_groups.CHECK,
    s3_route.CHECK,
    network_acls.CHECK,
    efs.CHECK,
    mount_targets.CHECK,
    fsx.CHECK,
    fsx_network.CHECK,
)
