"""Preflight of data that lies in an archive of S3: found by its storage class, by its head, and in a manifest."""

from __future__ import annotations

import json
from typing import Any

import pytest

import aws_stand_in
import launcher
from launcher.aws.account import Account
from launcher.preflight.check import Subject
from launcher.preflight.s3 import archives
from preflight_data import BASE, TRAIN, Broken, judge, put, with_data


def archive(s3: Any, kind: str) -> None:
    """An object that is archived, beside one that is not."""
    s3.put_object(Bucket="data", Key="old/1.tar", Body=b"data", StorageClass=kind)
    put(s3, "old/2.tar")


def archive_and_name(s3: Any) -> None:
    archive(s3, "GLACIER")
    put(s3, "train.manifest", body=json.dumps([{"prefix": "s3://data/old/"}, "1.tar", "2.tar"]).encode())


BROKEN = (
    Broken(
        "data in GLACIER",
        lambda s3: archive(s3, "GLACIER"),
        "channels: {train: s3://data/old/}",
        "objects-archived",
        TRAIN,
        ("1 of 2 objects are archived (GLACIER)", "'old/1.tar'", "restore-object"),
    ),
    Broken(
        "a connector's data in DEEP_ARCHIVE",
        lambda s3: archive(s3, "DEEP_ARCHIVE"),
        "channels: {train: {source: S3Connector, s3_uri: s3://data/old/}}",
        "objects-archived",
        TRAIN,
        ("(DEEP_ARCHIVE)",),
    ),
    Broken(
        "a manifest that names an archived object",
        archive_and_name,
        "channels: {train: {s3_uri: s3://data/train.manifest, s3_data_type: ManifestFile}}",
        "objects-archived",
        TRAIN,
        ("1 of the objects", "s3://data/old/1.tar"),
    ),
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_an_archived_object_is_found(aws: aws_stand_in.StandIn, broken: Broken) -> None:
    judge(aws, broken)


@pytest.mark.parametrize(
    ("head", "archive"),
    [
        ({}, None),
        ({"StorageClass": "GLACIER_IR"}, None),
        ({"StorageClass": "INTELLIGENT_TIERING"}, None),
        ({"StorageClass": "INTELLIGENT_TIERING", "ArchiveStatus": "ARCHIVE_ACCESS"}, "ARCHIVE_ACCESS"),
        ({"StorageClass": "GLACIER"}, "GLACIER"),
        ({"StorageClass": "GLACIER", "Restore": 'ongoing-request="true"'}, "GLACIER"),
        ({"StorageClass": "GLACIER", "Restore": 'ongoing-request="false", expiry-date="Tue, 24 Nov 2026"'}, None),
    ],
)
def test_what_lies_in_an_archive(head: dict[str, str], archive: str | None) -> None:
    assert archives.archive_of(head) == archive


class WithTiers(Account):
    """The account, but for what Intelligent-Tiering has put away, of which the stand-in knows nothing."""

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        answer = super().call(service, operation, **parameters)
        return answer | ({"ArchiveStatus": "DEEP_ARCHIVE_ACCESS"} if operation == "head_object" else {})


def test_what_intelligent_tiering_has_archived_is_found(aws: aws_stand_in.StandIn) -> None:
    archive(with_data(aws), "INTELLIGENT_TIERING")
    plan = launcher.plan(launcher.parse_spec(f"{BASE}channels: {{train: s3://data/old/}}"))
    (found,) = list(archives.ask_archives(Subject(plan, WithTiers(region="us-east-1"))))
    assert found[1] == "objects-archived"
    assert "objects are archived (DEEP_ARCHIVE_ACCESS), such as 'old/1.tar'" in found[2]
