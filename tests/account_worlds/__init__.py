"""Worlds for the contract of account checks: for every code one that breaks it, for every check one that is right.

A new check needs an entry in `BROKEN` of a file below for each of its codes. If the check has nothing to ask in
the good account (`account_world.CHANNELS`) or the good data (`GOOD` below), it needs an entry in `RIGHT`, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from account_data import Broken, put, put_lines, put_manifest
from account_world import World
from account_worlds import (
    iam,
    job,
    network,
    quota,
    resource_policies,
    s3,
    s3_directory,
    s3_manifests,
    s3_sizes,
    storage,
)
from launcher.account import CHECKS
from launcher.account.check import Check

DATA: dict[str, Broken] = {**s3.BROKEN, **s3_manifests.BROKEN, **s3_sizes.BROKEN}
ACCOUNT: dict[str, Broken] = {
    **job.BROKEN,
    **iam.BROKEN,
    **network.BROKEN,
    **resource_policies.BROKEN,
    **quota.BROKEN,
    **s3_directory.BROKEN,
    **storage.BROKEN,
}
# By the name of a check: what to add to the good account, and the spec's keys that make the check ask.
RIGHT: dict[str, tuple[Callable[[World], dict[str, str]], str]] = {
    "queue": (job.a_queue("gpu"), "queue: {{name: gpu, priority: 3}}"),
    "way to package index": (network.a_vpc(route=network.a_nat), network.WITH_REQUIREMENTS),
}
GOOD = """\
checkpoint_config: {s3_uri: s3://out/checkpoints}
debug_hook_config: {s3_output_path: s3://out/debug/}
tensor_board_output_config: {s3_output_path: s3://out/boards/}
channels:
  copied: s3://data/train/
  kept: s3://data/kept/
  mounted: {s3_uri: s3://data/train/, input_mode: FastFile, content_type: text/csv}
  streamed: {s3_uri: s3://data/train/, input_mode: Pipe}
  wrapped: {s3_uri: s3://data/train/, input_mode: Pipe, content_type: text/csv, record_wrapper_type: RecordIO}
  shared: {s3_uri: s3://data/train/, s3_data_distribution_type: ShardedByS3Key}
  partial: s3://data/train/deep/
  beginning: s3://data/parts/part-
  object: s3://data/single/one.csv
  listed: {s3_uri: s3://data/train.manifest, s3_data_type: ManifestFile}
  described: {s3_uri: s3://data/train.jsonl, s3_data_type: AugmentedManifestFile, input_mode: Pipe, \
record_wrapper_type: RecordIO, attribute_names: [source-ref, class]}
  script: {source: S3Connector, s3_uri: s3://data/train/}
  lists: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /lists}
vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}
"""


def put_good_data(s3: Any) -> None:
    """Put the data of GOOD, with all that is odd and right."""
    put(s3, "train/", body=b"")  # the console's folder
    put(s3, "train/_SUCCESS", "train/deep_$folder$", body=b"")  # Hadoop's, beside data
    for key, kind in (("5.tar", "GLACIER_IR"), ("6.tar", "INTELLIGENT_TIERING"), ("7.tar", "GLACIER")):
        s3.put_object(Bucket="data", Key=f"kept/{key}", Body=b"data", StorageClass=kind)
    s3.restore_object(Bucket="data", Key="kept/7.tar", RestoreRequest={"Days": 3})
    put(s3, "parts/part-0", "parts/part-1", "parts/part-2", "single/one.csv", "train_old/1.tar")
    put_manifest(s3, "1.tar", "deep/3.tar")
    put_lines(
        s3, {"source-ref": "s3://data/train/1.tar", "class": 3}, {"source-ref": "s3://data/train/2.tar", "class": 0}
    )


def shared_codes(checks: Iterable[Check]) -> list[tuple[Check, str]]:
    """The checks whose code another check reports, too."""
    counts = Counter(code for check in CHECKS for code in check.codes)
    return [(check, code) for check in checks for code in check.codes if counts[code] > 1]
