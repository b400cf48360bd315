"""Checksums, conditions, copies and refusals of the embedded S3 server."""

from __future__ import annotations

import base64
import hashlib
import http.client
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from patience import PATIENCE
from s3_objects import BODY, NAME, client_of, refusal, signed, text

CHECKSUMS = {
    "ChecksumCRC32": text(zlib.crc32(BODY).to_bytes(4, "big")),
    "ChecksumSHA1": text(hashlib.sha1(BODY).digest()),
    "ChecksumSHA256": text(hashlib.sha256(BODY).digest()),
}


@pytest.mark.parametrize("member", CHECKSUMS)
def test_stated_checksum_is_compared_kept_and_returned(s3: Any, member: str) -> None:
    put = s3.put_object(**NAME, Body=BODY, **{member: CHECKSUMS[member]})
    got = s3.get_object(**NAME, ChecksumMode="ENABLED")
    assert got["Body"].read() == BODY
    assert put[member] == got[member] == CHECKSUMS[member] and got["ChecksumType"] == "FULL_OBJECT"
    copied = s3.copy_object(Bucket="bucket", Key="copy", CopySource="bucket/key")
    assert copied["CopyObjectResult"][member] == CHECKSUMS[member]
    wrong = text(bytes(len(base64.b64decode(CHECKSUMS[member]))))
    assert refusal(s3.put_object, **NAME, Body=b"new", **{member: wrong}) == "BadDigest"
    assert refusal(s3.put_object, **NAME, Body=b"new", **{member: "AAAA"}) == "InvalidRequest"
    assert s3.get_object(**NAME)["Body"].read() == BODY, "a refused body replaces nothing"


def test_crc32c_is_compared_if_a_package_computes_it(s3: Any) -> None:
    pytest.importorskip("crc32c")
    assert refusal(s3.put_object, **NAME, Body=BODY, ChecksumCRC32C="AAAAAA==") == "BadDigest"


def test_content_md5_is_compared(s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY, ContentMD5=text(hashlib.md5(BODY).digest()))
    assert refusal(s3.put_object, **NAME, Body=BODY, ContentMD5=text(hashlib.md5(b"other").digest())) == "BadDigest"
    assert refusal(s3.put_object, **NAME, Body=BODY, ContentMD5="AAAA") == "InvalidDigest"


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_presigned_urls_are_answered(endpoint: str, s3: Any, version: str) -> None:
    """boto3 signs by version 2 by default."""
    signing = client_of(endpoint, signature_version=version)
    s3.put_object(**NAME, Body=BODY)
    url = signing.generate_presigned_url("get_object", {**NAME, "ResponseContentType": "text/csv"})
    with urlopen(url, timeout=PATIENCE) as response:
        assert response.read() == BODY and response.headers["Content-Type"] == "text/csv"


@pytest.mark.parametrize("text", ["text/csv\r\nX-Added: 1", "text/csv\n", "a\0", "😀"])
def test_header_of_the_url_that_cannot_be_one_is_refused(s3: Any, text: str) -> None:
    s3.put_object(**NAME, Body=BODY)
    for member in ("ResponseContentType", "ResponseContentDisposition", "ResponseCacheControl"):
        assert refusal(s3.get_object, **NAME, **{member: text}) == "InvalidArgument"
    got = s3.get_object(**NAME, ResponseContentType="text/é; a=b")
    assert (got["ContentType"], got["Body"].read()) == ("text/é; a=b", BODY)


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
    connection.request(
        "PUT", "/bucket/key", headers={**signed("PUT", f"{endpoint}/bucket/key"), "Content-Length": many}
    )
    assert connection.getresponse().status == 400
    connection.close()


def test_encryption_and_storage_class_are_reported(s3: Any) -> None:
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/key", "StorageClass": "STANDARD_IA"}
    assert s3.put_object(**NAME, Body=BODY, **asked)["ServerSideEncryption"] == "aws:kms"
    head = s3.head_object(**NAME)
    assert {name: head[name] for name in asked} == asked
    assert s3.list_objects_v2(Bucket="bucket")["Contents"][0]["StorageClass"] == "STANDARD_IA"
    s3.copy_object(Bucket="bucket", Key="copy", CopySource="bucket/key")
    assert "StorageClass" not in s3.head_object(Bucket="bucket", Key="copy")


@pytest.mark.parametrize(
    "asked",
    [
        {"Tagging": "team=vision"},
        {"StorageClass": "GLACIER"},
        {"ACL": "public-read"},
        {"GrantRead": "id=someone"},
        {"ObjectLockLegalHoldStatus": "ON"},
        {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0" * 32},
        {"WriteOffsetBytes": 0},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_unsupported_header_is_refused(s3: Any, asked: dict[str, Any]) -> None:
    assert refusal(s3.put_object, **NAME, Body=BODY, **asked) == "NotImplemented"
    assert refusal(s3.head_object, **NAME) == "404"


def test_harmless_acls_are_accepted(s3: Any) -> None:
    for acl in ("private", "bucket-owner-full-control"):
        s3.put_object(**NAME, Body=acl.encode(), ACL=acl)
        assert s3.get_object(**NAME)["Body"].read() == acl.encode()


def test_copy_conditions_are_checked(s3: Any) -> None:
    tag = s3.put_object(**NAME, Body=BODY)["ETag"]
    copy = {"Bucket": "bucket", "Key": "copy", "CopySource": "bucket/key"}
    assert refusal(s3.copy_object, **copy, CopySourceIfNoneMatch=tag) == "PreconditionFailed"
    assert refusal(s3.copy_object, **copy, CopySourceIfMatch='"other"') == "PreconditionFailed"
    s3.copy_object(**copy, CopySourceIfNoneMatch='"other"', CopySourceIfMatch=tag)


def test_copying_an_object_to_itself_needs_a_change(s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY)
    assert refusal(s3.copy_object, **NAME, CopySource="bucket/key") == "InvalidRequest"
    s3.copy_object(**NAME, CopySource="bucket/key", Metadata={"k": "v"}, MetadataDirective="REPLACE")
    assert s3.head_object(**NAME)["Metadata"] == {"k": "v"} and s3.get_object(**NAME)["Body"].read() == BODY


def test_refused_copy_reads_no_bytes(s3: Any, tmp_path: Path) -> None:
    """Bytes that are read are in the overlay's folder `incoming`, which is made for the first of them."""
    (tmp_path / "s3/data/here").write_bytes(BODY)
    copy = {"Bucket": "data", "Key": "here", "CopySource": "data/here"}
    assert refusal(s3.copy_object, **copy) == "InvalidRequest"
    assert refusal(s3.copy_object, **copy, StorageClass="GLACIER") == "NotImplemented"
    assert refusal(s3.copy_object, Bucket="data", Key="gone", CopySource="data/gone") == "NoSuchKey"
    assert not (tmp_path / "overlay/.s3/incoming").exists()
    s3.copy_object(**copy, StorageClass="STANDARD_IA")
    assert (tmp_path / "overlay/.s3/incoming").exists()


def test_content_encoding_aws_chunked_alone_is_ignored(s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY, ContentEncoding="gzip, aws-chunked")
    got = s3.get_object(**NAME)
    assert got["Body"].read() == BODY and got["ContentEncoding"] == "gzip"


def test_deleting_more_than_a_thousand_keys_is_refused(s3: Any) -> None:
    many = [{"Key": f"{index}"} for index in range(1001)]
    assert refusal(s3.delete_objects, Bucket="bucket", Delete={"Objects": many}) == "MalformedXML"
    assert len(s3.delete_objects(Bucket="bucket", Delete={"Objects": many[1:]})["Deleted"]) == 1000


def test_bucket_is_deleted_if_it_is_empty_and_not_data(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="a/b", Body=BODY)
    assert refusal(s3.delete_bucket, Bucket="bucket") == "BucketNotEmpty"
    s3.delete_object(Bucket="bucket", Key="a/b")
    s3.delete_bucket(Bucket="bucket")
    assert refusal(s3.head_bucket, Bucket="bucket") == "404"
    assert refusal(s3.delete_bucket, Bucket="data") == "AccessDenied"


def test_bucket_without_versioning_lists_one_version_per_object(s3: Any) -> None:
    for key in ("a/1", "a/2", "b"):
        s3.put_object(Bucket="bucket", Key=key, Body=BODY)
    pages = list(s3.get_paginator("list_object_versions").paginate(Bucket="bucket", PaginationConfig={"PageSize": 2}))
    found = [(entry["Key"], entry["VersionId"], entry["IsLatest"]) for page in pages for entry in page["Versions"]]
    assert found == [("a/1", "null", True), ("a/2", "null", True), ("b", "null", True)]
    s3.delete_object(Bucket="bucket", Key="b", VersionId="null")
    assert refusal(s3.delete_object, Bucket="bucket", Key="a/1", VersionId="v1") == "InvalidArgument"


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
