"""Parts of the account checks that are tested alone: quotas, trust, resource policies, addresses."""

from __future__ import annotations

from typing import Any

import pytest

import launcher
import make_quota_codes
from account_data import Altered, named
from account_world import CHANNELS, CHECKS, MACHINES, ROLE, TRUST, World
from launcher.account import creation
from launcher.account.check import Subject
from launcher.account.creation import Machines
from launcher.account.needs import MADE_UP
from launcher.account.policies import surely_denies
from launcher.account.results import check_account, subject_of
from launcher.account.role import may_assume, may_name, statements
from launcher.aws.session import Account, AwsError
from launcher.request.instance_types import instance_type
from patience import PATIENCE


def subject(spec: str, account: Account) -> Subject:
    return subject_of(launcher.plan(launcher.parse_spec(spec)), account)


@pytest.mark.parametrize(("name", "codes"), [("ml.g4dn.xlarge", ["quota-exceeded"]), ("ml.g5.xlarge", [])])
def test_code_of_another_quota_than_the_table_says_is_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, codes: list[str]
) -> None:
    """The table was read from a published list; a quota of 0 of another type would refuse the job."""
    code = creation.codes()["ml.g4dn.xlarge for training job usage"]
    monkeypatch.setattr(creation, "codes", lambda: {f"{name} for training job usage": code})
    report = world.checked(MACHINES % (name, 21, ""), checks=named("quotas"))
    assert [each.code for each in report.problems] == codes


def test_table_of_quota_codes_is_made_from_aws_answer(world: World) -> None:
    listed = world.aws.client("service-quotas").get_paginator("list_aws_default_service_quotas")
    answers = [quota for page in listed.paginate(ServiceCode="sagemaker") for quota in page["Quotas"]]
    made = make_quota_codes.table(answers)
    assert list(made) == sorted(made)
    assert made["ml.m5.large"] == [
        quota["QuotaCode"].removeprefix("L-")
        for use in creation.USES
        for quota in answers
        if quota["QuotaName"] == f"ml.m5.large for {use}"
    ]


def test_expired_credentials_end_the_checks(world: World) -> None:
    world.aws.fault("expired", "*", count=-1)
    plan = launcher.plan(launcher.parse_spec(world.spec(CHANNELS)))
    with pytest.raises(AwsError) as caught:
        list(named("account")[0].problems(subject(world.spec(CHANNELS), Account(region="us-east-1"))))
    assert caught.value.is_unauthenticated
    with pytest.raises(AwsError):
        check_account(plan, Account(region="us-east-1"), checks=CHECKS, deadline=PATIENCE)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("PendingImport", "is PendingImport"),
        ("PendingDeletion", "cancel-key-deletion"),
        ("Disabled", "enable-key"),
        ("Enabled", ""),
        ("Updating", ""),
    ],
)
def test_unusable_key_states_are_reported(world: World, state: str, says: str) -> None:
    account = Altered({"describe_key": lambda answer: {"KeyMetadata": answer["KeyMetadata"] | {"KeyState": state}}})
    problems = list(named("keys")[0].problems(subject(world.spec(), account)))
    assert [each.code for each in problems] == (["key-disabled", "key-disabled"] if says else [])
    assert all(says in each.message for each in problems)


SAGEMAKER = TRUST["Statement"][0]


@pytest.mark.parametrize(
    ("listed", "may"),
    [
        (SAGEMAKER, True),
        ([SAGEMAKER], True),
        ([SAGEMAKER | {"Principal": {"Service": ["ec2.amazonaws.com", "sagemaker.amazonaws.com"]}}], True),
        ([SAGEMAKER | {"Principal": "*"}], True),
        ([SAGEMAKER | {"Action": ["sts:TagSession", "sts:Assume*"]}], True),
        ([SAGEMAKER | {"Condition": {"StringEquals": {"aws:SourceAccount": "1"}}}], True),
        ([SAGEMAKER | {"Action": "sts:TagSession"}], False),
        ([SAGEMAKER | {"Principal": {"AWS": ROLE % "other"}}], False),
        ([SAGEMAKER, SAGEMAKER | {"Effect": "Deny"}], False),
        ([SAGEMAKER, SAGEMAKER | {"Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}], True),
        ([], False),
    ],
)
def test_trust_policy_decides_whether_sagemaker_may_assume(listed: Any, may: bool) -> None:
    assert may_assume(statements({"Statement": listed})) is may


DENY: dict[str, Any] = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "s3:GetObject",
    "Resource": "arn:aws:s3:::data/train/*",
}


@pytest.mark.parametrize(
    ("changed", "denies"),
    [
        ({}, True),
        ({"Principal": {"AWS": [ROLE % "other", ROLE % "training"]}}, True),
        ({"Principal": {"AWS": "123456789012"}}, True),
        ({"Principal": {"AWS": ROLE % "other"}}, False),
        ({"Principal": {"Service": "sagemaker.amazonaws.com"}}, False),
        ({"Principal": {"AWS": "arn:aws:iam::210987654321:root"}}, False),
        ({"Effect": "Allow"}, False),
        ({"Action": ["s3:put*", "s3:get*"]}, True),
        ({"Action": "s3:GetObjectTagging"}, False),
        ({"Resource": "arn:aws:s3:::data/[t]rain/*"}, False),
        ({"Resource": "arn:aws:s3:::data/${aws:username}/*"}, False),
        ({"Condition": {"Bool": {"aws:SecureTransport": "false"}}}, False),
    ],
)
def test_only_a_sure_deny_counts(changed: dict[str, Any], denies: bool) -> None:
    assert surely_denies(DENY | changed, "s3:GetObject", "arn:aws:s3:::data/train/1.tar", ROLE % "training") is denies


def test_deny_does_not_apply_to_its_exclusions() -> None:
    role, key = ROLE % "training", "arn:aws:s3:::data/train/1.tar"
    rest = {name: DENY[name] for name in ("Effect", "Principal")}
    all_but = rest | {"NotAction": "s3:List*", "NotResource": ["arn:aws:s3:::data/open/*", "arn:aws:s3:::data"]}
    assert surely_denies(all_but, "s3:GetObject", key, role)
    assert not surely_denies(all_but, "s3:ListBucket", key, role)
    assert not surely_denies(all_but, "s3:GetObject", "arn:aws:s3:::data/open/1", role)
    some = rest | {"Action": "s3:*", "NotResource": "arn:aws:s3:::data/*.gz"}
    assert surely_denies(some, "s3:GetObject", key, role)
    assert not surely_denies(some, "s3:PutObject", f"arn:aws:s3:::data/digits-1/{MADE_UP}", role)
    someone = {**DENY, "NotPrincipal": {"AWS": ROLE % "other"}}
    del someone["Principal"]
    assert not surely_denies(someone, "s3:GetObject", key, role)


@pytest.mark.parametrize(
    ("principal", "may"),
    [
        ("*", True),
        ({"AWS": "*"}, True),
        ({"AWS": [ROLE % "other", ROLE % "training"]}, True),
        ({"AWS": ROLE % "sub/training"}, True),
        ({"AWS": "arn:aws:sts::123456789012:assumed-role/training/SageMaker"}, True),
        ({"AWS": "AROAEXAMPLEID"}, True),
        ({"AWS": "arn:aws:iam::123456789012:root"}, False),
        ({"AWS": ROLE % "training-2"}, False),
        ({"Service": "logging.s3.amazonaws.com"}, False),
    ],
)
def test_resource_policy_may_name_the_role(principal: Any, may: bool) -> None:
    assert may_name([{"Effect": "Allow", "Principal": principal}], "training") is may
    assert not may_name([{"Effect": "Deny", "Principal": principal}], "training")


@pytest.mark.parametrize(
    ("kind", "addresses"),
    [
        ("ml.m5.large", 4),
        ("ml.g5.48xlarge", 4),
        ("ml.p4d.24xlarge", 10),
        ("ml.p5.4xlarge", 4),
        ("ml.p5.48xlarge", 10),
        ("ml.p6-b200.48xlarge", 10),
        ("ml.trn1.2xlarge", 4),
        ("ml.trn1n.32xlarge", 10),
    ],
)
def test_two_machines_need_addresses_by_type(kind: str, addresses: int) -> None:
    assert Machines((), kind, 2).addresses == addresses


@pytest.mark.parametrize(
    ("names", "architecture"),
    [
        (("ml.m5.xlarge", "ml.g4dn.xlarge", "ml.gr6.4xlarge", "ml.p6-b200.48xlarge", "ml.trn1.2xlarge"), "amd64"),
        (("ml.c7g.large", "ml.c6gn.large", "ml.m6gd.large", "ml.g5g.xlarge", "ml.p6e-gb200.36xlarge"), "arm64"),
        (("m5.xlarge",), None),
    ],
)
def test_architecture_of_instance_types(names: tuple[str, ...], architecture: str | None) -> None:
    assert {instance_type(name).architecture for name in names} == {architecture}
