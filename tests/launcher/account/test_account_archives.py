"""Checks of data in an archive of S3: found by its storage class, by HeadObject, and in a manifest."""

from __future__ import annotations

import pytest

import aws_stand_in
from account_data import Altered, checked, named, only, with_data
from launcher.account.listing import archive_of


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
def test_archive_of_an_object_is_recognised(head: dict[str, str], archive: str | None) -> None:
    assert archive_of(head) == archive


def test_objects_archived_by_intelligent_tiering_are_found(aws: aws_stand_in.StandIn) -> None:
    """The stand-in cannot archive an object of this storage class, so the answer of HeadObject is changed."""
    with_data(aws).put_object(Bucket="data", Key="old/1.tar", Body=b"data", StorageClass="INTELLIGENT_TIERING")
    account = Altered({"head_object": lambda answer: {**answer, "ArchiveStatus": "DEEP_ARCHIVE_ACCESS"}})
    code, _, message = only(checked("channels: {train: s3://data/old/}", account, checks=named("archives")))
    assert code == "objects-archived"
    assert "objects are archived (DEEP_ARCHIVE_ACCESS), such as 'old/1.tar'" in message
