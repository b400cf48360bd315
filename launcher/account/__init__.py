"""Account checks: read-only questions to AWS that show, before a job costs anything, whether it can start and read its data.

A check is a function whose docstring begins with its question, a row of the table below, and its codes in checks.yaml. The table of
the reference and `--explain` derive from them, and tests ask for a world that breaks each of the codes (tests/account_worlds/).
"""

from __future__ import annotations

from launcher.account import creation, data, needs, policies, role, storage, stored_objects, vpc
from launcher.account.check import Check

CHECKS: tuple[Check, ...] = (
    Check("buckets", storage.buckets, storage.by_bucket),
    Check("prefixes", data.prefixes, storage.prefixes_read),
    Check("contents", data.contents, storage.prefixes_read),
    Check("archives", data.archives, storage.prefixes_read),
    Check("manifests", stored_objects.manifests, stored_objects.with_manifest),
    Check("shares", data.shares, data.sharded),
    Check("disk", data.disk),
    Check("checkpoints", data.checkpoints, storage.checkpoint_path),
    Check("account", creation.account),
    Check("job name", creation.job_name),
    Check("caller", role.caller),
    Check("queue", creation.queue, creation.queues),
    Check("role", role.role),
    Check("permissions", role.permissions),
    Check("bucket policies", policies.bucket_policies, policies.in_buckets),
    Check("keys", needs.keys, needs.named_keys),
    Check("key policies", policies.key_policies, policies.own_keys),
    Check("keys of data", needs.data_keys, needs.keys_of_data),
    Check("image", creation.image, creation.images),
    Check("image architecture", creation.image_architecture, creation.images),
    Check("quotas", creation.quotas, creation.wanted_quotas),
    Check("subnets", vpc.subnets),
    Check("zones", vpc.zones),
    Check("security groups", vpc.security_groups),
    Check("way to S3", vpc.way_to_s3),
    Check("endpoint policies", policies.endpoint_policies),
    Check("way to package index", vpc.way_to_package_index),
    Check("EFS", storage.efs, storage.channels_of("EFS")),
    Check("FSx", storage.fsx, storage.channels_of("FSx")),
)
