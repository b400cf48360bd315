"""What preflight asks of buckets' own policies and keys: broken ones, each found, named and given its remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from preflight_world import Broken, World, allow, judge


def data_of_a_key_that_goes(world: World) -> dict[str, str]:
    key, s3 = world.key(), world.aws.client("s3")
    s3.put_object(Bucket="data", Key="going/1.tar", Body=b"data", ServerSideEncryption="aws:kms", SSEKMSKeyId=key)
    world.kms.schedule_key_deletion(KeyId=key)
    return {"data_key": key, "role": world.role([allow(["*"])])}


def output_of_a_disabled_key(world: World) -> dict[str, str]:
    key, s3 = world.key(), world.aws.client("s3")
    s3.create_bucket(Bucket="locked")
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": default}]}
    s3.put_bucket_encryption(Bucket="locked", ServerSideEncryptionConfiguration=rules)
    world.kms.disable_key(KeyId=key)
    return {"data_key": key, "role": world.role([allow(["*"])])}


def a_bucket_that_denies(bucket: str, principal: Any = "*", **more: Any) -> Callable[[World], dict[str, str]]:
    """A role that may do everything, and a bucket whose policy says no."""

    def make(world: World) -> dict[str, str]:
        s3, role = world.aws.client("s3"), world.role([allow(["*"])])
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="train/1.tar", Body=b"data")
        deny = {"Sid": "Closed", "Effect": "Deny", "Principal": principal, "Action": "s3:GetObject", **more}
        world.lend(bucket, role, {"Resource": f"arn:aws:s3:::{bucket}/*", **deny})
        return {"role": role}

    return make


BROKEN = {
    "a bucket that denies everybody": Broken(
        a_bucket_that_denies("shut"),
        "channels: {{train: s3://shut/train/}}",
        [("bucket-denies", "channels.train.s3_uri")],
        ("bucket 'shut' denies the role s3:GetObject on s3://shut/train/*", "statement Closed"),
    ),
    "a bucket that denies its account": Broken(
        a_bucket_that_denies("shut2", {"AWS": "arn:aws:iam::123456789012:root"}, Action="s3:*"),
        "channels: {{train: s3://shut2/train/}}",
        [("bucket-denies", "channels.train.s3_uri")],
        ("'shut2' denies the role s3:GetObject",),
    ),
    "a bucket that lets nobody write": Broken(
        a_bucket_that_denies("shut3", {"AWS": "*"}, Action=["s3:Put*"]),
        "output_data_config: {{s3_output_path: s3://shut3/}}",
        [("bucket-denies", "output_data_config.s3_output_path")],
        ("s3:PutObject on s3://shut3/",),
    ),
    "data of a key that is going": Broken(
        data_of_a_key_that_goes,
        "channels: {{train: s3://data/going/}}",
        [("data-key-disabled", "channels.train.s3_uri")],
        ("{data_key}", "about to be deleted", "cancel-key-deletion"),
    ),
    "an output bucket of a disabled key": Broken(
        output_of_a_disabled_key,
        "output_data_config: {{s3_output_path: s3://locked/}}",
        [("bucket-key-disabled", "output_data_config.s3_output_path")],
        ("{data_key}", "enable-key"),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_found_named_and_given_its_remedy(world: World, case: str) -> None:
    judge(world, BROKEN[case])
