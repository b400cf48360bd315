"""Roles, policies and KMS keys that the job cannot use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from account_data import Broken
from account_world import POLICY, ROLE, TRUST, World, allow, nothing


def _without(*actions: str) -> list[dict[str, Any]]:
    return [*POLICY, {"Effect": "Deny", "Action": list(actions), "Resource": "*"}]


def a_role(*statements: dict[str, Any], **more: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"role": world.role(list(statements) or None, **more)}


def a_key(**more: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"key": world.key(**more)}


def encrypted_data(world: World) -> dict[str, str]:
    """A role with all rights in S3, but none for the key of the data."""
    key, s3 = world.key(), world.aws.client("s3")
    s3.put_object(Bucket="data", Key="secret/1.tar", Body=b"data", ServerSideEncryption="aws:kms", SSEKMSKeyId=key)
    may = [allow(["s3:*", "logs:*", "ecr:*", "ec2:*"]), allow(["kms:*"], f"arn:aws:kms:*:*:key/{world.ids['key']}")]
    return {"data_key": key, "role": world.role(may)}


def a_disabled_key(world: World) -> dict[str, str]:
    key = world.key()
    world.kms.disable_key(KeyId=key)
    return {"key": key}


def a_key_to_be_deleted(world: World) -> dict[str, str]:
    key = world.key()
    world.kms.schedule_key_deletion(KeyId=key)
    return {"key": key}


def data_of_a_key_to_be_deleted(world: World) -> dict[str, str]:
    key, s3 = world.key(), world.aws.client("s3")
    s3.put_object(Bucket="data", Key="going/1.tar", Body=b"data", ServerSideEncryption="aws:kms", SSEKMSKeyId=key)
    world.kms.schedule_key_deletion(KeyId=key)
    return {"data_key": key, "role": world.role([allow(["*"])])}


def a_caller(name: str, *statements: dict[str, Any]) -> tuple[Callable[[World], dict[str, str]], dict[str, Any]]:
    """A caller who may do only this: a role with a path, as those of AWS's single sign-on have, and GetCallerIdentity's answer."""

    def make(world: World) -> dict[str, str]:
        world.role(list(statements), name=name, Path="/sso/")
        return {}

    arn = f"arn:aws:sts::123456789012:assumed-role/{name}/me"
    return make, {"get_caller_identity": lambda answer: {**answer, "Arn": arn}}


_CREATE = allow(["sagemaker:CreateTrainingJob"])
_NO_TAGS, _WITHOUT_TAGS = a_caller("no-tags", _CREATE, allow(["iam:PassRole"]))
_NO_ROLE, _WITHOUT_ROLE = a_caller(
    "no-role",
    _CREATE,
    allow(["iam:PassRole"], Condition={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}),
)
_UNDECIDED, _WITH_UNDECIDED = a_caller(
    "undecided", allow(["sagemaker:*", "iam:*"], Condition={"StringEquals": {"aws:SourceVpc": "vpc-1"}})
)


ROLE_AT = "role_arn"

BROKEN = {
    "a caller who may not tag": Broken(
        _NO_TAGS,
        "tags: {{team: a}}",
        [("caller-denied", "tags")],
        ("sagemaker:AddTags", "arn:aws:iam::123456789012:role/sso/no-tags"),
        _WITHOUT_TAGS,
    ),
    "a caller who may pass the role to EC2 only": Broken(
        _NO_ROLE,
        "",
        [("caller-denied", ROLE_AT)],
        ("iam:PassRole on arn:aws:iam::123456789012:role/training",),
        _WITHOUT_ROLE,
    ),
    "a caller whose permission is decided elsewhere": Broken(_UNDECIDED, "", [], (), _WITH_UNDECIDED),
    "a role of another account": Broken(
        nothing,
        "role_arn: arn:aws:iam::210987654321:role/training",
        [("role-other-account", ROLE_AT)],
        ("210987654321", "name one in 123456789012"),
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
    "a role that may not read a secret": Broken(
        nothing,
        "code: {{entry_point: entrypoints/train.py}}\nenvironment: {{HF_TOKEN: '${{secretsmanager:prod/hf}}', B: '${{ssm:/b}}'}}",
        [("role-denied", "environment.HF_TOKEN"), ("role-denied", "environment.B")],
        ("secretsmanager:GetSecretValue on ${{secretsmanager:prod/hf}}", "ssm:GetParameter on ${{ssm:/b}}"),
    ),
    "a role that may not pull the image": Broken(
        a_role(*_without("ecr:BatchGetImage")), "", [("role-denied", "image")], ("ecr:BatchGetImage", "training")
    ),
    "a role that may not create network interfaces": Broken(
        a_role(*_without("ec2:CreateNetworkInterface")),
        "",
        [("role-denied", "vpc_config")],
        ("ec2:CreateNetworkInterface",),
    ),
    "a role that may not write its log": Broken(
        a_role(*_without("logs:*")), "", [("role-lacks", ROLE_AT)], ("logs:CreateLogStream, logs:PutLogEvents",)
    ),
    "remote debugging by a role that may not": Broken(
        a_role(*_without("ssmmessages:*")),
        "remote_debug_config: {{enable_remote_debug: true}}",
        [("role-lacks", "remote_debug_config")],
        ("ssmmessages:CreateControlChannel", "Systems Manager"),
    ),
    "a key that is disabled": Broken(
        a_disabled_key, "", [("key-disabled", "resource_config.volume_kms_key_id")], ("enable-key --key-id {key}",)
    ),
    "a key scheduled for deletion": Broken(
        a_key_to_be_deleted, "", [("key-disabled", "resource_config.volume_kms_key_id")], ("cancel-key-deletion",)
    ),
    "a missing key": Broken(
        nothing,
        "output_data_config: {{s3_output_path: s3://out/, kms_key_id: alias/main}}",
        [("key-missing", "output_data_config.kms_key_id")],
        ("'alias/main'", "list-aliases"),
    ),
    "a key in another region": Broken(
        nothing,
        "output_data_config: {{s3_output_path: s3://out/, kms_key_id: 'arn:aws:kms:eu-west-1:123456789012:alias/a'}}",
        [("key-region", "output_data_config.kms_key_id")],
        ("eu-west-1", "name a key in us-east-1"),
    ),
    "data of a key scheduled for deletion": Broken(
        data_of_a_key_to_be_deleted,
        "channels: {{train: s3://data/going/}}",
        [("data-key-disabled", "channels.train.s3_uri")],
        ("{data_key}", "is PendingDeletion", "cancel-key-deletion"),
    ),
}
