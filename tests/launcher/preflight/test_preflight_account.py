"""What preflight asks of an account: broken environments, each found, named and given its remedy; and none in a good one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import launcher
from preflight_world import (
    CHANNELS,
    MACHINES,
    POLICY,
    ROLE,
    TRUST,
    Broken,
    World,
    allow,
    judge,
    nothing,
)


def test_a_good_account_has_no_problem_and_nothing_is_written(world: World) -> None:
    world.aws.clear_calls()
    report = world.checked(CHANNELS)
    assert [str(problem) for problem in report.problems] == []
    assert report.not_asked == []
    needless = {outcome.check for outcome in report.outcomes if outcome.status == "not-needed"}
    assert needless == {"training plans", "directory buckets"} and {outcome.status for outcome in report.outcomes} == {
        "passed",
        "not-needed",
    }
    assert world.aws.calls("iam:SimulatePrincipalPolicy")
    assert world.aws.writing_calls() == []
    assert ((), "account 123456789012, region us-east-1") in report.notes


def _without(*actions: str) -> list[dict[str, Any]]:
    return [*POLICY, {"Effect": "Deny", "Action": list(actions), "Resource": "*"}]


def a_role(*statements: dict[str, Any], **more: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"role": world.role(list(statements) or None, **more)}


def a_key(**more: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"key": world.key(**more)}


def encrypted_data(world: World) -> dict[str, str]:
    """A role that may do all to S3, and does not have the key of the data."""
    key, s3 = world.key(), world.aws.client("s3")
    s3.put_object(Bucket="data", Key="secret/1.tar", Body=b"data", ServerSideEncryption="aws:kms", SSEKMSKeyId=key)
    may = [allow(["s3:*", "logs:*", "ecr:*", "ec2:*"]), allow(["kms:*"], f"arn:aws:kms:*:*:key/{world.ids['key']}")]
    return {"data_key": key, "role": world.role(may)}


def encrypted_output(world: World) -> dict[str, str]:
    """A bucket that encrypts with a key that the role does not have."""
    key, s3 = world.key(), world.aws.client("s3")
    s3.create_bucket(Bucket="sealed")
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": default}]}
    s3.put_bucket_encryption(Bucket="sealed", ServerSideEncryptionConfiguration=rules)
    may = [allow(["s3:*", "logs:*", "ecr:*", "ec2:*"]), allow(["kms:*"], f"arn:aws:kms:*:*:key/{world.ids['key']}")]
    return {"data_key": key, "role": world.role(may)}


def a_disabled_key(world: World) -> dict[str, str]:
    key = world.key()
    world.kms.disable_key(KeyId=key)
    return {"key": key}


def a_key_that_goes(world: World) -> dict[str, str]:
    key = world.key()
    world.kms.schedule_key_deletion(KeyId=key)
    return {"key": key}


def a_quota(name: str, value: float) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        world.aws.quota(name, value)
        return {}

    return make


def a_job(world: World) -> dict[str, str]:
    """A job that is there already."""
    sagemaker, request = world.aws.client("sagemaker"), dict(launcher.plan(launcher.parse_spec(OLDER)).request)
    sagemaker.create_training_job(**request)
    return {}


OLDER = """\
training_job_name: digits-0
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.5
role_arn: arn:aws:iam::123456789012:role/training
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://out/}
"""
RULE = "debug_rule_configurations: [{{rule_configuration_name: a, rule_evaluator_image: a:1, instance_type: ml.c5.xlarge}}]"
ROLE_AT, TYPE_AT = "role_arn", "resource_config.instance_type"

BROKEN = {
    "a name that is taken": Broken(
        a_job,
        "training_job_name: digits-0",
        [("name-taken", "training_job_name")],
        ("'digits-0'", "--name", "base_name"),
    ),
    "a role of another account": Broken(
        nothing,
        "role_arn: arn:aws:iam::210987654321:role/training",
        [("role-other-account", ROLE_AT)],
        ("210987654321", "name one of 123456789012"),
    ),
    "a misspelt role": Broken(
        nothing, f"role_arn: {ROLE % 'trainin'}", [("role-missing", ROLE_AT)], ("'trainin'", ROLE % "training")
    ),
    "a role named without its path": Broken(
        a_role(Path="/service-role/"), "", [("role-missing", ROLE_AT)], (ROLE % "service-role/{role}",)
    ),
    "a role for EC2": Broken(
        a_role(trust=[TRUST["Statement"][0] | {"Principal": {"Service": "ec2.amazonaws.com"}}]),
        "",
        [("role-trust", ROLE_AT)],
        ("ec2.amazonaws.com", "sagemaker.amazonaws.com"),
    ),
    "a role for SageMaker of another account": Broken(
        a_role(trust=[{**TRUST["Statement"][0], "Condition": {"StringEquals": {"aws:SourceAccount": "210987654321"}}}]),
        "",
        [("role-trust", ROLE_AT)],
        ("for another account only", "aws:SourceAccount", "write 123456789012 there"),
    ),
    "a role that may not read the data": Broken(
        a_role(*POLICY[1:], allow(["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::out/*", "arn:aws:s3:::data/list")),
        "",
        [("role-denied", "channels.train.s3_uri")],
        ("s3:GetObject", "s3://data/train/"),
    ),
    "a role that may list another folder": Broken(
        a_role(
            POLICY[0],
            *POLICY[2:],
            allow(["s3:ListBucket"], "arn:aws:s3:::data", Condition={"StringLike": {"s3:prefix": "b/*"}}),
        ),
        "",
        [("role-denied", "channels.train.s3_uri")],
        ("s3:ListBucket", "bucket data"),
    ),
    "a role that may only read what is tagged": Broken(
        a_role(
            *POLICY[1:],
            allow(["s3:PutObject", "s3:GetObject"], "arn:aws:s3:::out/*", "arn:aws:s3:::data/list"),
            allow(["s3:GetObject"], Condition={"StringEquals": {"s3:ExistingObjectTag/SageMaker": "true"}}),
        ),
        "",
        [("role-denied", "channels.train.s3_uri")],
        ("s3:GetObject",),
    ),
    "a role that may not write the output": Broken(
        a_role(*_without("s3:PutObject")),
        "",
        [("role-denied", "output_data_config.s3_output_path"), ("role-denied", "checkpoint_config.s3_uri")],
        ("s3:PutObject", "s3://out/"),
    ),
    "a role that may not use the key": Broken(
        a_role(*_without("kms:GenerateDataKey")),
        "",
        [("role-denied", "output_data_config.kms_key_id")],
        ("kms:GenerateDataKey", "arn:aws:kms:"),
    ),
    "data whose key the role may not use": Broken(
        encrypted_data,
        "channels: {{train: s3://data/secret/}}",
        [("role-denied", "channels.train.s3_uri")],
        ("kms:Decrypt on the data's key", "{data_key}"),
    ),
    "an output bucket whose key the role may not use": Broken(
        encrypted_output,
        "output_data_config: {{s3_output_path: s3://sealed/}}",
        [("role-lacks", "output_data_config.s3_output_path")],
        ("kms:GenerateDataKey on the bucket's key", "{data_key}"),
    ),
    "a role that may not pull the image": Broken(
        a_role(*_without("ecr:BatchGetImage")), "", [("role-denied", "image")], ("ecr:BatchGetImage", "training")
    ),
    "a role that may make no network interfaces": Broken(
        a_role(*_without("ec2:CreateNetworkInterface")),
        "",
        [("role-denied", "vpc_config")],
        ("ec2:CreateNetworkInterface",),
    ),
    "a role that may not write its log": Broken(
        a_role(*_without("logs:*")), "", [("role-lacks", ROLE_AT)], ("logs:CreateLogStream, logs:PutLogEvents",)
    ),
    "a key that is disabled": Broken(
        a_disabled_key, "", [("key-disabled", "resource_config.volume_kms_key_id")], ("enable-key --key-id {key}",)
    ),
    "a key that is going": Broken(
        a_key_that_goes, "", [("key-disabled", "resource_config.volume_kms_key_id")], ("cancel-key-deletion",)
    ),
    "no such key": Broken(
        nothing,
        "output_data_config: {{s3_output_path: s3://out/, kms_key_id: alias/main}}",
        [("key-missing", "output_data_config.kms_key_id")],
        ("'alias/main'", "list-aliases"),
    ),
    "a key of another region": Broken(
        nothing,
        "output_data_config: {{s3_output_path: s3://out/, kms_key_id: 'arn:aws:kms:eu-west-1:123456789012:alias/a'}}",
        [("key-region", "output_data_config.kms_key_id")],
        ("eu-west-1", "name a key of us-east-1"),
    ),
    "a key that signs": Broken(
        a_key(KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256"),
        "",
        [("key-kind", "resource_config.volume_kms_key_id")],
        ("SIGN_VERIFY", "SYMMETRIC_DEFAULT"),
    ),
    "a tag that is not there": Broken(
        nothing,
        "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.6",
        [("image-missing", "image")],
        ("'1.6'", "1.5"),
    ),
    "a repository that is not there": Broken(
        nothing,
        "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/trainig:1.5",
        [("image-missing", "image")],
        ("'trainig'", "did you mean training?"),
    ),
    "a digest that is not there": Broken(
        nothing,
        f"image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training@sha256:{'0' * 64}",
        [("image-missing", "image")],
        ("sha256:0000",),
    ),
    "a quota of 0": Broken(
        a_quota("ml.g5.xlarge for training job usage", 0),
        MACHINES % ("ml.g5.xlarge", 1, ""),
        [("quota-exceeded", TYPE_AT)],
        ("'ml.g5.xlarge for training job usage' is 0", "needs 1"),
    ),
    "a quota of less": Broken(
        nothing, MACHINES % ("ml.m5.large", 21, ""), [("quota-exceeded", TYPE_AT)], ("is 20", "needs 21")
    ),
    "a quota for spot": Broken(
        a_quota("ml.g5.4xlarge for spot training job usage", 1),
        MACHINES % ("ml.g5.4xlarge", 2, "") + "\nenable_managed_spot_training: true\n"
        "stopping_condition: {{max_runtime_in_seconds: 60, max_wait_time_in_seconds: 60}}",
        [("quota-exceeded", TYPE_AT)],
        ("'ml.g5.4xlarge for spot training job usage' is 1",),
    ),
    "a quota for warm pools": Broken(
        nothing,
        MACHINES % ("ml.m5.large", 1, ", keep_alive_period_in_seconds: 600"),
        [("warm-pool-quota", "resource_config.keep_alive_period_in_seconds")],
        ("'ml.m5.large for training warm pool usage' is 0", "none is kept warm"),
    ),
    "a quota for rules": Broken(
        a_quota("ml.c5.xlarge for processing job usage", 0),
        RULE,
        [("quota-exceeded", "debug_rule_configurations[0].instance_type")],
        ("'ml.c5.xlarge for processing job usage' is 0",),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_found_named_and_given_its_remedy(world: World, case: str) -> None:
    judge(world, BROKEN[case])
