"""Account checks: read-only questions to AWS that show, before a job costs anything, whether it can start and read its data.

A check is a function whose docstring begins with its question, a row of the table below, and its codes in checks.yaml. The table of
the reference and `--explain` derive from them, and tests ask for a world that breaks each of the codes (tests/account_worlds/).
"""

from __future__ import annotations

from launcher.account import (
    data,
    disk,
    file_systems,
    image,
    manifest_objects,
    needs,
    permissions,
    places,
    policies,
    queue,
    quota,
    role,
    s3_route,
    vpc,
)
from launcher.account.check import Check

CHECKS: tuple[Check, ...] = (
    Check("buckets", places.buckets, places.by_bucket),
    Check("prefixes", data.prefixes, places.prefixes_read),
    Check("archives", data.archives, places.prefixes_read),
    Check("manifests", manifest_objects.manifests, manifest_objects.with_manifest),
    Check("shares", data.shares, data.sharded),
    Check("disk", disk.disk),
    Check("checkpoints", disk.checkpoints, places.checkpoint_path),
    Check("account", image.account),
    Check("job name", image.job_name),
    Check("caller", role.caller),
    Check("queue", queue.queue, queue.queues),
    Check("role", role.role),
    Check("permissions", permissions.permissions),
    Check("bucket policies", policies.bucket_policies, policies.in_buckets),
    Check("keys", needs.keys, needs.named_keys),
    Check("key policies", policies.key_policies, policies.own_keys),
    Check("keys of data", needs.data_keys),
    Check("image", image.image, image.images),
    Check("image architecture", image.image_architecture),
    Check("quotas", quota.quotas),
    Check("subnets", vpc.subnets),
    Check("zones", vpc.zones),
    Check("security groups", vpc.security_groups),
    Check("way to S3", s3_route.way_to_s3),
    Check("endpoint policies", policies.endpoint_policies),
    Check("way to package index", s3_route.way_to_package_index),
    Check("EFS", file_systems.efs, file_systems.channels_of("EFS")),
    Check("FSx", file_systems.fsx, file_systems.channels_of("FSx")),
)
