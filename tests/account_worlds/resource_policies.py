"""Policies of keys, buckets and endpoints that keep the job out, whatever its role's own policies allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from account_data import Broken
from account_world import ROLE, World, allow, nothing
from account_worlds.iam import a_key


def _policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def _for(principal: str) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "kms:*", "Resource": "*"}


def data_of_a_closed_key(world: World) -> dict[str, str]:
    """Data whose key is for another role, and a role that may use every key."""
    key, s3 = world.key(Policy=_policy(_for(ROLE % "other"))), world.aws.client("s3")
    s3.put_object(Bucket="data", Key="closed/1.tar", Body=b"data", ServerSideEncryption="aws:kms", SSEKMSKeyId=key)
    return {"data_key": key, "role": world.role([allow(["*"])])}


def a_granted_key(world: World) -> dict[str, str]:
    key = world.key(Policy=_policy(_for(ROLE % "other")))
    world.kms.create_grant(KeyId=key, GranteePrincipal=ROLE % "training", Operations=["CreateGrant", "Decrypt"])
    return {"key": key}


def a_bucket_that_denies(bucket: str, principal: Any = "*", **more: Any) -> Callable[[World], dict[str, str]]:
    """A role with all rights, and a bucket whose policy denies it."""

    def make(world: World) -> dict[str, str]:
        s3, role = world.aws.client("s3"), world.role([allow(["*"])])
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="train/1.tar", Body=b"data")
        deny = {"Sid": "Closed", "Effect": "Deny", "Principal": principal, "Action": "s3:GetObject", **more}
        world.lend(bucket, role, {"Resource": f"arn:aws:s3:::{bucket}/*", **deny})
        return {"role": role}

    return make


def only_from(bucket: str, **condition: Any) -> Callable[[World], dict[str, str]]:
    """A bucket that denies requests which do not come from the named VPC or endpoint."""

    def make(world: World) -> dict[str, str]:
        values = {key: value.format(**world.ids) for key, value in condition["keys"].items()}
        deny = a_bucket_that_denies(
            bucket, Action="s3:*", Condition={condition.get("operator", "StringNotEquals"): values}
        )
        return deny(world)

    return make


def _endpoints_with(*statements: dict[str, Any]) -> dict[str, Any]:
    """DescribeVpcEndpoints' answer with a policy for each endpoint, which moto leaves out."""
    policy = _policy(*statements)

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "VpcEndpoints": [{**each, "PolicyDocument": policy} for each in answer["VpcEndpoints"]]}

    return {"describe_vpc_endpoints": change}


_ANYONE = {"Effect": "Allow", "Principal": "*"}
_DATA_ONLY = {**_ANYONE, "Action": "s3:*", "Resource": ["arn:aws:s3:::data", "arn:aws:s3:::data/*"]}
_ALL = {**_ANYONE, "Action": "*", "Resource": "*"}
_READ = {**_ANYONE, "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}
_OF_ORGANIZATION = {**_ALL, "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}}
_TO_OUT = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::out/*"}
VPCE = "vpce-0123456789abcdef0"
OUTPUTS = ("output_data_config.s3_output_path", "checkpoint_config.s3_uri")
BROKEN = {
    "a key whose policy is for another role": Broken(
        a_key(Policy=_policy(_for(ROLE % "other"))),
        "",
        [("key-policy-closed", "resource_config.volume_kms_key_id")],
        ("names neither the role 'training' nor the account's root",),
    ),
    "data of a key whose policy is for another role": Broken(
        data_of_a_closed_key,
        "channels: {{train: s3://data/closed/}}",
        [("key-policy-closed", "channels.train.s3_uri")],
        ("{data_key}",),
    ),
    "a key whose policy names the role": Broken(a_key(Policy=_policy(_for(ROLE % "training"))), "", [], ()),
    "a key that is granted to the role": Broken(a_granted_key, "", [], ()),
    "a bucket that denies everyone": Broken(
        a_bucket_that_denies("shut"),
        "channels: {{train: s3://shut/train/}}",
        [("bucket-denies", "channels.train.s3_uri")],
        ("bucket 'shut' (statement Closed) denies the role s3:GetObject on s3://shut/train/*",),
    ),
    "a bucket that denies its account": Broken(
        a_bucket_that_denies("shut2", {"AWS": "arn:aws:iam::123456789012:root"}, Action="s3:*"),
        "channels: {{train: s3://shut2/train/}}",
        [("bucket-denies", "channels.train.s3_uri")],
        ("'shut2' (statement Closed) denies the role s3:GetObject",),
    ),
    "a bucket that denies writing": Broken(
        a_bucket_that_denies("shut3", {"AWS": "*"}, Action=["s3:Put*"]),
        "output_data_config: {{s3_output_path: s3://shut3/}}",
        [("bucket-denies", "output_data_config.s3_output_path")],
        ("s3:PutObject on s3://shut3/",),
    ),
    "a bucket for another VPC's endpoint": Broken(
        only_from("walled", keys={"aws:SourceVpce": VPCE}),
        "channels: {{train: s3://walled/train/}}",
        [("bucket-denies-network", "channels.train.s3_uri")],
        ("'walled' (statement Closed) denies the role s3:GetObject", f"unless it comes from {VPCE}"),
    ),
    "a bucket for a VPC's endpoint, and a job without a VPC": Broken(
        only_from("walled2", keys={"aws:sourceVpce": VPCE}, operator="StringNotEqualsIfExists"),
        "channels: {{train: s3://walled2/train/}}\nvpc_config: null",
        [("bucket-denies-network", "channels.train.s3_uri")],
        ("set vpc_config",),
    ),
    "a bucket for the job's own VPC": Broken(
        only_from("walled3", keys={"aws:SourceVpc": "{vpc}"}), "channels: {{train: s3://walled3/train/}}", [], ()
    ),
    "a bucket that exempts others by a second condition": Broken(
        only_from("walled4", keys={"aws:SourceVpce": VPCE, "aws:PrincipalArn": ROLE % "other"}),
        "channels: {{train: s3://walled4/train/}}",
        [],
        (),
    ),
    "an endpoint for another bucket": Broken(
        nothing,
        "",
        [("endpoint-policy-closed", path) for path in OUTPUTS],
        ("s3:PutObject on s3://out/", "the policy of the endpoint vpce-"),
        _endpoints_with(_DATA_ONLY),
    ),
    "an endpoint that denies writing": Broken(
        nothing,
        "",
        [("endpoint-policy-closed", path) for path in OUTPUTS],
        ("s3:PutObject",),
        _endpoints_with(_ALL, _TO_OUT),
    ),
    "an endpoint for reading": Broken(
        nothing, "", [("endpoint-policy-closed", path) for path in OUTPUTS], ("s3:PutObject",), _endpoints_with(_READ)
    ),
    "an endpoint for the organization": Broken(nothing, "", [], (), _endpoints_with(_OF_ORGANIZATION)),
}
