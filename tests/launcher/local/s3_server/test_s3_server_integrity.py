"""Checksums, conditions, copies and refusals of the embedded S3 server."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from patience import PATIENCE
from s3_objects import BODY, NAME, client_of, refusal, signed


def test_url_signed_by_version_2_is_refused_with_what_to_write(endpoint: str, s3: Any) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(
            client_of(endpoint, signature_version="s3").generate_presigned_url("get_object", NAME), timeout=PATIENCE
        )
    with refused.value as answer:  # Python 3.14 warns of one that is not closed.
        assert b"sign it with Config(signature_version='s3v4')" in answer.read()


@pytest.mark.parametrize(
    "asked",
    [{"ResponseContentType": "text/csv"}, {"PartNumber": 2}, {"IfModifiedSince": 0}, {"IfUnmodifiedSince": 0}],
    ids=lambda asked: next(iter(asked)),
)
def test_reading_that_no_client_of_ours_asks_for_is_refused(s3: Any, asked: dict[str, Any]) -> None:
    s3.put_object(**NAME, Body=BODY)
    assert refusal(s3.get_object, **NAME, **asked) == "NotImplemented"


def test_numbers_of_thousands_of_digits_are_no_numbers(endpoint: str, s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY)
    many = "9" * 5000
    for asked in (f"bytes=0-{many}", f"bytes=-{many}", f"bytes={many}-"):  # malformed, which S3 ignores
        assert s3.get_object(**NAME, Range=asked)["Body"].read() == BODY
    copy = {"CopySource": "bucket/key", "CopySourceRange": f"bytes=0-{many}", "PartNumber": 1}
    upload = s3.create_multipart_upload(**NAME)["UploadId"]
    assert refusal(s3.upload_part_copy, **NAME, **copy, UploadId=upload) == "InvalidArgument"
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=PATIENCE)
    url = f"{endpoint}/bucket?max-keys={many}"
    connection.request("GET", f"/bucket?max-keys={many}", headers=signed("GET", url))
    assert b"<Code>InvalidArgument</Code>" in connection.getresponse().read()
    connection.close()


def test_place_inside_an_object_is_refused(s3: Any) -> None:
    assert refusal(s3.put_object, **NAME, Body=BODY, WriteOffsetBytes=0) == "NotImplemented"
    assert refusal(s3.head_object, **NAME) == "404"


def test_acls_tags_and_storage_classes_have_no_effect(s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY, ACL="public-read", Tagging="a=b", StorageClass="GLACIER")
    assert s3.get_object(**NAME)["Body"].read() == BODY


def test_copy_conditions_are_checked(s3: Any) -> None:
    tag = s3.put_object(**NAME, Body=BODY)["ETag"]
    copy = {"Bucket": "bucket", "Key": "copy", "CopySource": "bucket/key"}
    assert refusal(s3.copy_object, **copy, CopySourceIfNoneMatch=tag) == "PreconditionFailed"
    assert refusal(s3.copy_object, **copy, CopySourceIfMatch='"other"') == "PreconditionFailed"
    s3.copy_object(**copy, CopySourceIfNoneMatch='"other"', CopySourceIfMatch=tag)


def test_copying_an_object_to_itself_replaces_its_metadata(s3: Any) -> None:
    """As rclone does to set a time."""
    s3.put_object(**NAME, Body=BODY)
    s3.copy_object(**NAME, CopySource="bucket/key", Metadata={"k": "v"}, MetadataDirective="REPLACE")
    assert s3.head_object(**NAME)["Metadata"] == {"k": "v"} and s3.get_object(**NAME)["Body"].read() == BODY


def test_refused_copy_reads_no_bytes(s3: Any, tmp_path: Path) -> None:
    """Bytes that are read are in the overlay's folder `incoming`, which is made for the first of them."""
    (tmp_path / "s3/data/here").write_bytes(BODY)
    assert refusal(s3.copy_object, Bucket="data", Key="gone", CopySource="data/gone") == "NoSuchKey"
    assert not (tmp_path / "overlay/.s3/incoming").exists()


def test_content_encoding_aws_chunked_alone_is_ignored(s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY, ContentEncoding="gzip, aws-chunked")
    got = s3.get_object(**NAME)
    assert got["Body"].read() == BODY and got["ContentEncoding"] == "gzip"


def test_deleting_more_than_a_thousand_keys_is_refused(s3: Any) -> None:
    many = [{"Key": f"{index}"} for index in range(1001)]
    assert refusal(s3.delete_objects, Bucket="bucket", Delete={"Objects": many}) == "MalformedXML"
    assert len(s3.delete_objects(Bucket="bucket", Delete={"Objects": many[1:]})["Deleted"]) == 1000


def test_buckets_are_not_deleted_and_have_no_versions(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="b", Body=BODY)
    assert refusal(s3.delete_bucket, Bucket="bucket") == "MethodNotAllowed"
    assert refusal(s3.list_object_versions, Bucket="bucket") == "NotImplemented"
    assert refusal(s3.delete_object, Bucket="bucket", Key="b", VersionId="null") == "NotImplemented"
    of_versions = {"Objects": [{"Key": "b", "VersionId": "null"}]}
    assert refusal(s3.delete_objects, Bucket="bucket", Delete=of_versions) == "NotImplemented"
    assert s3.get_object(Bucket="bucket", Key="b")["Body"].read() == BODY


@pytest.mark.parametrize("body", [b"", b"not chunks", b"a\r\n01234", b"5\r\n01234"], ids=repr)
def test_broken_aws_chunks_are_answered(endpoint: str, s3: Any, body: bytes) -> None:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=PATIENCE)
    headers = {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": "10"}
    connection.request("PUT", "/bucket/key", body, signed("PUT", f"{endpoint}/bucket/key", **headers))
    response = connection.getresponse()
    assert response.status == 400 and b"<Code>IncompleteBody</Code>" in response.read()
    connection.request("GET", "/bucket/key", headers=signed("GET", f"{endpoint}/bucket/key"))
    assert connection.getresponse().status == 404
    connection.close()
