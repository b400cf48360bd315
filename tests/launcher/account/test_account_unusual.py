"""Checks of accounts that are unusual but right, and of those that do not answer: no false alarms, and nothing is hidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import launcher
from account_data import found
from account_world import (
    CHANNELS,
    CHECKS,
    FAST,
    IN_GROUP,
    MACHINES,
    POLICY,
    TRUST,
    World,
    a_rule,
    allow,
    nothing,
)
from launcher.account.results import check_account
from launcher.aws.session import Account
from patience import PATIENCE
from served_bucket import serve

# Unusual and right


def a_bucket_that_lets_the_role_in(world: World) -> dict[str, str]:
    """The bucket's own policy allows the role; the role's policies do not name the bucket."""
    role = world.role([*POLICY, allow(["s3:GetObject"], "arn:aws:s3:::other/*")])
    world.lend("lent", role)
    return {"role": role}


def a_role_with_an_open_condition(world: World) -> dict[str, str]:
    here = {"StringEquals": {"aws:SourceVpc": "vpc-0123456789abcdef0"}}
    return {"role": world.role([*POLICY[1:], allow(["s3:*"], Condition=here)])}


def a_role_for_tagged_data(world: World) -> dict[str, str]:
    tags = {"TagSet": [{"Key": "SageMaker", "Value": "true"}]}
    world.aws.client("s3").put_object_tagging(Bucket="data", Key="train/1.tar", Tagging=tags)
    tagged = {"StringEquals": {"s3:ExistingObjectTag/SageMaker": "true"}}
    rest = allow(["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::out/*", "arn:aws:s3:::data/list")
    return {"role": world.role([*POLICY[1:], rest, allow(["s3:GetObject"], Condition=tagged)])}


def a_role_for_archives_only(world: World) -> dict[str, str]:
    """The keys that exist are those that it may read."""
    rest = allow(
        ["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::out/*", "arn:aws:s3:::data/list", "arn:aws:s3:::data/*.tar"
    )
    return {"role": world.role([*POLICY[1:], rest])}


def a_role_with_all_rights(world: World) -> dict[str, str]:
    return {"role": world.role([allow(["*"])], trust=[TRUST["Statement"][0] | {"Action": "sts:*"}])}


def a_vpc_with(route: Callable[[World, str, str], None]) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        vpc, table = world.vpc()
        group = world.group(vpc)
        world.let_in(group, from_group=group)
        subnets = {f"subnet_{letter}": world.subnet(letter, vpc) for letter in "ab"}
        route(world, vpc, table)
        return {"job_group": group, **subnets}

    return make


def nat(world: World, vpc: str, table: str) -> None:
    address = world.ec2.allocate_address(Domain="vpc")["AllocationId"]
    gateway = world.ec2.create_nat_gateway(SubnetId=world.ids["subnet_a"], AllocationId=address)["NatGateway"]
    world.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway["NatGatewayId"])


def transit(world: World, vpc: str, table: str) -> None:
    gateway = world.ec2.create_transit_gateway()["TransitGateway"]["TransitGatewayId"]
    world.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", TransitGatewayId=gateway)


def interface_endpoint(world: World, vpc: str, table: str) -> None:
    name = "com.amazonaws.us-east-1.s3"
    world.ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=name, VpcEndpointType="Interface")


def tables_of_their_own(world: World, vpc: str, table: str) -> None:
    """The main table has no route out, and no subnet uses it."""
    own = world.ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    world.endpoint(vpc, own)
    for subnet in world.ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["Subnets"]:
        world.ec2.associate_route_table(RouteTableId=own, SubnetId=subnet["SubnetId"])


def a_group_open_to_the_vpc(world: World) -> dict[str, str]:
    group = world.group()
    world.let_in(group, 1024, 65535, from_cidr="10.0.0.0/8")
    store = world.group()
    world.let_in(store, from_cidr="10.0.0.0/16")
    subnets = (world.ids["subnet_a"], world.ids["subnet_b"])
    interface = world.interface(store)
    return {
        "job_group": group,
        "efs": world.file_system(*subnets, group=store),
        "fsx": world.fsx(NetworkInterfaceIds=[interface]),
    }


def a_group_with_only_needed_rules(world: World) -> dict[str, str]:
    """Only needed connections are allowed out."""
    group, store = world.group(outbound=False), world.ids["store_group"]
    world.let_in(group, from_group=group)
    world.let_in(store, from_group=group)
    rules = [a_rule(-1, 0, group, ""), a_rule(2049, 0, store, ""), a_rule(988, 1023, store, "")]
    https = a_rule(443, 0, "", "") | {"PrefixListIds": [{"PrefixListId": "pl-63a5400a"}]}
    world.ec2.authorize_security_group_egress(GroupId=group, IpPermissions=[*rules, https])
    return {"job_group": group}


def the_default_group(world: World) -> dict[str, str]:
    group, job = world.group(), world.group()
    world.let_in(group, from_group=group)
    return {"job_group": f"{group}, {job}"}


def a_scratch_file_system(world: World) -> dict[str, str]:
    return {"fsx": world.fsx(LustreConfiguration={"DeploymentType": "SCRATCH_1", "MountName": "fsx"})}


def a_bucket_that_denies_under_conditions(world: World) -> dict[str, str]:
    """Denied are access without TLS, by other roles, to other folders: all of them usual."""
    role = world.role([*POLICY, allow(["s3:*"], "arn:aws:s3:::guarded*")])
    world.aws.client("s3").create_bucket(Bucket="guarded")
    world.aws.client("s3").put_object(Bucket="guarded", Key="train/1.tar", Body=b"data")
    deny = {"Effect": "Deny", "Action": "s3:*", "Resource": "arn:aws:s3:::guarded/*"}
    world.lend(
        "guarded",
        role,
        {**deny, "Principal": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        {**deny, "NotPrincipal": {"AWS": f"arn:aws:iam::123456789012:role/{role}"}},
        {**deny, "Principal": "*", "Resource": "arn:aws:s3:::guarded/secret/*"},
        {**deny, "Principal": "*", "Action": "s3:DeleteObject"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "NotResource": "arn:aws:s3:::guarded/*.tar"},
    )
    return {"role": role}


def a_role_for_its_own_account(world: World) -> dict[str, str]:
    own = {
        "StringEquals": {"aws:SourceAccount": "123456789012"},
        "ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:*:123456789012:*"},
    }
    return {"role": world.role(trust=[{**TRUST["Statement"][0], "Condition": own}])}


ALIAS = "'arn:aws:kms:us-east-1:123456789012:alias/mine'"
LENT = "channels: {{train: s3://lent/train/}}"
UNUSUAL: dict[str, tuple[Callable[[World], dict[str, str]], str]] = {
    "a bucket's policy lets the role in": (a_bucket_that_lets_the_role_in, LENT),
    "a bucket's policy denies under conditions": (
        a_bucket_that_denies_under_conditions,
        "channels: {{train: s3://guarded/train/}}",
    ),
    "a trust for its own account": (a_role_for_its_own_account, ""),
    "a condition that depends on the context": (a_role_with_an_open_condition, ""),
    "data that is tagged": (a_role_for_tagged_data, ""),
    "a role for archives only": (a_role_for_archives_only, ""),
    "a role with all rights": (a_role_with_all_rights, ""),
    "a role with a path": (lambda world: {"role": "sub/" + world.role(Path="/sub/")}, ""),
    "a key by its alias's ARN": (
        nothing,
        f"output_data_config: {{{{s3_output_path: s3://out/, kms_key_id: {ALIAS}}}}}",
    ),
    "NAT": (a_vpc_with(nat), ""),
    "a transit gateway": (a_vpc_with(transit), ""),
    "an interface endpoint": (a_vpc_with(interface_endpoint), ""),
    "route tables of the subnets' own": (a_vpc_with(tables_of_their_own), ""),
    "groups open to ranges": (a_group_open_to_the_vpc, CHANNELS + IN_GROUP),
    "a group that lets out only what is needed": (a_group_with_only_needed_rules, CHANNELS + IN_GROUP),
    "two groups, one of them open": (the_default_group, IN_GROUP),
    "one host behind a closed group": (
        lambda world: {"job_group": world.group()},
        MACHINES % ("ml.m5.large", 1, "") + "\n" + IN_GROUP,
    ),
    "a scratch file system": (a_scratch_file_system, FAST % ("{fsx}", "/fsx/images")),
    "the whole of a file system": (nothing, FAST % ("{fsx}", "/fsx1abcd")),
    "no VPC": (nothing, "vpc_config: null"),
    "a quota that is not listed": (nothing, MACHINES % ("ml.x9.large", 1, "") + "\nignore: [aws-enum]"),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_but_right_account_has_no_problem(world: World, case: str) -> None:
    make, overlay = UNUSUAL[case]
    report = world.checked(overlay, **(world.ids | make(world)))
    assert [str(problem) for problem in report.problems] == []
    assert report.not_asked == []


# Not asked


def test_image_in_a_registry_that_does_not_answer_is_not_asked(world: World) -> None:
    report = world.checked("image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.5.1-cpu-py311")
    assert found(report) == []
    assert [check for check, _ in report.not_asked] == ["image"]


@pytest.mark.parametrize(
    ("denied", "silent"),
    [
        ("iam:*", {"caller", "role", "permissions"}),
        ("iam:SimulatePrincipalPolicy", {"caller", "permissions"}),
        ("kms:DescribeKey", {"keys"}),
        ("ecr:*", {"image", "image architecture"}),
        ("service-quotas:*", {"quotas"}),
        ("sagemaker:DescribeTrainingJob", {"job name"}),
        ("ec2:DescribeRouteTables", {"way to S3", "endpoint policies"}),
        ("ec2:DescribeInstanceTypeOfferings", {"zones"}),
        ("ec2:*", {"subnets", "zones", "security groups", "way to S3", "endpoint policies", "EFS", "FSx"}),
        ("efs:*", {"EFS"}),
        ("fsx:*", {"FSx"}),
    ],
)
def test_denied_service_is_reported_and_blocks_nothing(world: World, denied: str, silent: set[str]) -> None:
    world.aws.deny(denied)
    report = world.checked(CHANNELS)
    assert found(report) == []
    assert {check for check, _ in report.not_asked} == silent
    assert all("you may not ask: " in why for _, why in report.not_asked)


def test_unanswered_file_system_hides_no_other(world: World) -> None:
    world.aws.deny("efs:*", containing=world.ids["efs"])
    channels = "one: {{source: EFS, file_system_id: {efs}, directory_path: /a}}, "
    channels += "other: {{source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /a}}"
    report = world.checked(f"channels: {{{{{channels}}}}}")
    assert found(report) == [("efs-missing", "channels.other.file_system_id")]
    assert all("channels.one.file_system_id" in why for _, why in report.not_asked)


def test_unreadable_bucket_policy_leaves_the_role_unknown(world: World) -> None:
    world.aws.deny("s3:GetBucketPolicy")
    report = world.checked("channels: {{train: s3://lent/train/}}")
    assert found(report) == []
    assert {check for check, _ in report.not_asked} == {"permissions", "bucket policies"}


def test_endpoint_with_only_s3_blocks_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(tmp_path / "data", tmp_path / "written") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        plan = launcher.plan(launcher.parse_spec(world.spec(CHANNELS)))
        report = check_account(plan, Account(region="us-east-1"), checks=CHECKS, deadline=PATIENCE)
    assert found(report) == []
    passed = [result.check for result in report.results if result.status == "passed"]
    assert passed == ["keys of data"]  # which S3 alone answers
    assert {result.status for result in report.results} == {"passed", "not-asked", "not-needed"}
