"""Which objects are in an archive of S3, by HeadObject."""

from __future__ import annotations

import pytest

from launcher.account.stored_objects import archive_of


@pytest.mark.parametrize(
    ("head", "archive"),
    [
        ({}, None),
        ({"StorageClass": "GLACIER_IR"}, None),
        ({"StorageClass": "INTELLIGENT_TIERING"}, None),
        ({"StorageClass": "GLACIER"}, "GLACIER"),
        ({"StorageClass": "GLACIER", "Restore": 'ongoing-request="true"'}, "GLACIER"),
        ({"StorageClass": "GLACIER", "Restore": 'ongoing-request="false", expiry-date="Tue, 24 Nov 2026"'}, None),
    ],
)
def test_archive_of_an_object_is_recognised(head: dict[str, str], archive: str | None) -> None:
    assert archive_of(head) == archive
