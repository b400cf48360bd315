"""The owners of the buckets that a job uses, which S3 checks by ExpectedBucketOwner."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import launcher
from aws_stand_in import StandIn
from launcher.rules.examples import laid_over_base
from sagemaker_channels.checkpointing.place import place_of
from sagemaker_channels.errors import ChannelError, ConfigError
from sagemaker_channels.sources import s3_client, s3_owners, s3_pages, silence
from sagemaker_channels.sources.connector_client import place
from sagemaker_channels.sources.s3_owners import owner_of

ACCOUNT, OTHER = "123456789012", "210987654321"
ARN = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/cats-1"
OWNERS = "LAUNCHER_BUCKET_OWNERS_0"


@pytest.fixture
def bucket(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of the job's account, in a process that is in the job and has checked nothing."""
    aws.client("s3").create_bucket(Bucket="mine")
    monkeypatch.setenv("TRAINING_JOB_ARN", ARN)
    s3_owners.why_unchecked.cache_clear()
    silence.warn_once.cache_clear()
    return "mine"


def test_checkpoints_are_not_sent_to_a_bucket_of_another_account(aws: StandIn, bucket: str) -> None:
    place = place_of(f"s3://{bucket}")
    place.write("first", lambda stream: stream.write(b"1"))
    with place.open("first") as file:
        assert file.read(1) == b"1"
    aws.order("s3/bucket", name=bucket, owner=OTHER)
    s3_owners.why_unchecked.cache_clear()
    for use in (
        lambda: place.write("second", lambda stream: stream.write(b"2")),
        lambda: place.open("first").__enter__(),
        lambda: place.remove("first"),
        lambda: place.content("first"),
    ):
        with pytest.raises(ChannelError, match=f"s3://mine does not belong to account {ACCOUNT}; .* bucket_owners: "):
            use()
    assert [found["Key"] for found in aws.client("s3").list_objects_v2(Bucket=bucket)["Contents"]] == ["first"]


def test_owner_is_asked_for_once_per_process(aws: StandIn, bucket: str) -> None:
    aws.clear_calls()
    for _ in range(3):
        s3_client.upload(bucket, "key", lambda stream: stream.write(b"x"))
    assert len(aws.calls("s3:HeadBucket")) == 1


def test_named_owner_replaces_the_jobs_and_holds_for_channels(
    aws: StandIn, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.client("s3").put_object(Bucket=bucket, Key="train/a", Body=b"x")
    aws.order("s3/bucket", name=bucket, owner=OTHER)
    assert [info.key for page, _ in s3_client.pages(bucket, "train/") for info in page] == ["train/a"]
    monkeypatch.setenv(OWNERS, json.dumps({bucket: OTHER}))
    s3_client.upload(bucket, "key", lambda stream: stream.write(b"x"))
    assert [key for page in s3_pages.rest(bucket, "train/", place(os.environ), b"") for key in page.keys] == [
        b"train/a"
    ]
    monkeypatch.setenv(OWNERS, json.dumps({bucket: ACCOUNT}))
    with pytest.raises(ChannelError, match="does not belong"):
        next(s3_client.pages(bucket, "train/"))
    with pytest.raises(Exception, match="status 403"):
        list(s3_pages.rest(bucket, "train/", place(os.environ), b""))


def test_question_that_is_forbidden_is_a_warning(
    aws: StandIn, bucket: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.order("s3/bucket", name=bucket, forbidden=True)
    for _ in range(2):
        s3_owners.check_owner(bucket, is_own=True)
    assert capfd.readouterr().err.count(f"s3://mine: not checked that it belongs to account {ACCOUNT}: ") == 1
    s3_owners.why_unchecked.cache_clear()
    monkeypatch.setitem(sys.modules, "botocore.config", None)
    s3_owners.check_owner(bucket, is_own=True)
    assert "botocore is not installed" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "environ", "own", "other"),
    [
        ("mine", {}, None, None),
        ("mine", {"TRAINING_JOB_ARN": ARN}, ACCOUNT, None),
        ("mine", {"TRAINING_JOB_ARN": ARN.replace(ACCOUNT, "0" * 12)}, None, None),
        ("mine", {"TRAINING_JOB_ARN": ARN, OWNERS: f'{{"mine": "{OTHER}"}}'}, OTHER, OTHER),
        ("mine--use1-az4--x-s3", {"TRAINING_JOB_ARN": ARN}, None, None),
        ("mine-abc-s3alias", {"TRAINING_JOB_ARN": ARN}, None, None),
    ],
)
def test_owner_is_the_one_named_or_the_jobs(
    name: str, environ: dict[str, str], own: str | None, other: str | None
) -> None:
    assert owner_of(name, environ, is_own=True) == own
    assert owner_of(name, environ, is_own=False) == other


def test_damaged_owners_are_named() -> None:
    with pytest.raises(ConfigError, match="LAUNCHER_BUCKET_OWNERS_"):
        owner_of("mine", {OWNERS: "["}, is_own=True)


def test_plan_passes_the_owners_to_the_container(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    owners = {f"a-bucket-of-others-{number:02}": OTHER for number in range(20)}  # more than one variable holds
    text = laid_over_base(
        f"code: {{directory: {tmp_path}, entry_point: train.py}}\nbucket_owners: {json.dumps(owners)}\n"
    )
    environment = launcher.plan(launcher.parse_spec(text)).request["Environment"]
    assert {owner_of(bucket, environment, is_own=False) for bucket in owners} == {OTHER}
