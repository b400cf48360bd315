"""Writing to the embedded S3 server: every test here also runs against moto, so that our answers stay S3's."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import itertools
import os
import uuid
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from patience import PATIENCE
from s3_objects import BODY, PART, Bucket, client_of, signed
from served_bucket import serve


@dataclass(frozen=True)
class Target(Bucket):
    moto: bool  # departs from S3's documentation here and there; each place says so


@pytest.fixture(params=["ours", "moto"])
def s3(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    with ExitStack() as stack:
        moto = request.param == "moto"
        if moto:
            url = request.getfixturevalue("moto_url")
        else:
            url = stack.enter_context(serve(tmp_path / "s3", tmp_path / "overlay"))
        client = client_of(url)
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        client.create_bucket(Bucket=bucket)
        yield Target(url, bucket, client, moto)


def test_put_keeps_headers_and_metadata(s3: Target) -> None:
    said = {"Metadata": {"mtime": "12.5"}, "ContentType": "text/plain", "CacheControl": "no-cache"}
    put = s3.client.put_object(Bucket=s3.bucket, Key="a/b", Body=BODY, ContentEncoding="gzip", **said)
    head = s3.client.head_object(Bucket=s3.bucket, Key="a/b")
    assert {name: head[name] for name in said} == said and head["ContentEncoding"] == "gzip"
    assert put["ETag"] == head["ETag"] == f'"{hashlib.md5(BODY).hexdigest()}"'
    s3.client.put_object(Bucket=s3.bucket, Key="a/b", Body=b"")
    assert s3.read("a/b") == b"" and not s3.client.head_object(Bucket=s3.bucket, Key="a/b")["Metadata"]


def send(
    s3: Target, method: str, key: str, body: bytes | Iterator[bytes], headers: dict[str, str]
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(s3.url).netloc, timeout=PATIENCE)
    if not isinstance(body, bytes):
        headers = {**headers, "Transfer-Encoding": "chunked"}
    path = f"/{s3.bucket}/{key}"
    headers = signed(method, s3.url + path, **headers)
    connection.request(method, path, body, headers, encode_chunked=not isinstance(body, bytes))
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


@pytest.mark.parametrize("size", [0, 10, 200_000])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("twice", [True, False])  # HTTP's own chunks around them
def test_aws_chunked_bodies_are_decoded(s3: Target, size: int, signed: bool, twice: bool) -> None:
    content = bytes(itertools.islice(itertools.cycle(range(251)), size))
    signature = ";chunk-signature=" + "0" * 64 if signed else ""
    pieces = [content[start : start + 65536] for start in range(0, size, 65536)]
    body = b"".join(b"%x%s\r\n%s\r\n" % (len(piece), signature.encode(), piece) for piece in pieces)
    checksum = base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
    body += f"0{signature}\r\nx-amz-checksum-crc32:{checksum}\r\n\r\n".encode()
    headers = {
        "x-amz-content-sha256": f"STREAMING-{'AWS4-HMAC-SHA256' if signed else 'UNSIGNED'}-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": str(size),
        "x-amz-trailer": "x-amz-checksum-crc32",
        "Content-Encoding": "aws-chunked",
    }
    assert send(s3, "PUT", "k", iter([body[:7], body[7:]]) if twice else body, headers)[0] == 200
    assert s3.read("k") == content
    assert "ContentEncoding" not in s3.client.head_object(Bucket=s3.bucket, Key="k")


def test_multipart_upload_makes_one_object(s3: Target) -> None:
    name = {"Bucket": s3.bucket, "Key": "a/big"}
    upload = {**name, "UploadId": s3.client.create_multipart_upload(**name, Metadata={"k": "v"})["UploadId"]}
    bodies = {1: os.urandom(PART), 2: os.urandom(PART + 7), 4: b"the end"}
    tags = {
        number: s3.client.upload_part(**upload, PartNumber=number, Body=bodies[number])["ETag"] for number in (4, 2, 1)
    }
    assert s3.error_of("get_object", Key="a/big") == ("NoSuchKey", 404)

    def complete(*parts: tuple[int, str]) -> dict[str, Any]:
        named = [{"PartNumber": number, "ETag": tag} for number, tag in parts]
        return {**upload, "MultipartUpload": {"Parts": named}}

    whole = [(number, tags[number]) for number in (1, 2, 4)]
    for wrong, code in {
        ((1, tags[4]), (4, tags[4])): "InvalidPart",
        ((1, tags[1]), (3, tags[2])): "InvalidPart",
        **({} if s3.moto else {((2, tags[2]), (1, tags[1])): "InvalidPartOrder"}),  # moto takes any order
        ((4, tags[4]), (5, s3.client.upload_part(**upload, PartNumber=5, Body=b"5")["ETag"])): "EntityTooSmall",
    }.items():
        assert s3.error_of("complete_multipart_upload", **complete(*wrong)) == (code, 400)
    done = s3.client.complete_multipart_upload(**complete(*whole))
    digest = hashlib.md5(b"".join(hashlib.md5(body).digest() for body in bodies.values())).hexdigest()
    assert done["ETag"] == f'"{digest}-3"' == s3.client.head_object(**name)["ETag"]
    assert s3.client.head_object(**name)["Metadata"] == {"k": "v"}
    assert s3.read("a/big") == b"".join(bodies.values())


def test_aborted_and_unknown_uploads_are_refused(s3: Target) -> None:
    name = {"Bucket": s3.bucket, "Key": "k"}
    upload = {**name, "UploadId": s3.client.create_multipart_upload(**name)["UploadId"]}
    s3.client.upload_part(**upload, PartNumber=1, Body=BODY)
    s3.client.abort_multipart_upload(**upload)
    if s3.moto:
        return  # fails at these with a 500
    operations: dict[str, dict[str, Any]] = {
        "upload_part": {"PartNumber": 1, "Body": b""},
        "complete_multipart_upload": {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": "x"}]}},
        "abort_multipart_upload": {},
    }
    for operation, more in operations.items():
        assert s3.error_of(operation, **upload, **more) == ("NoSuchUpload", 404), operation


def test_boto3_transfers_are_read_back(s3: Target, tmp_path: Path) -> None:
    content = os.urandom(2 * 8 * 1024 * 1024 + 5)  # three parts of its own choosing
    s3.client.upload_fileobj(io.BytesIO(content), s3.bucket, "up")
    s3.client.download_file(s3.bucket, "up", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == content


def test_copy_keeps_or_replaces_metadata(s3: Target) -> None:
    s3.client.put_object(Bucket=s3.bucket, Key="from é", Body=BODY, Metadata={"k": "v"}, ContentType="text/plain")
    s3.put("big", bytes(PART) + BODY)
    for key, more, metadata in (("to", {}, {"k": "v"}), ("new", {"Metadata": {"n": "w"}}, {"n": "w"})):
        directive = {"MetadataDirective": "REPLACE"} if more else {}
        source = {"Bucket": s3.bucket, "Key": "from é"}
        copied = s3.client.copy_object(Bucket=s3.bucket, Key=key, CopySource=source, **more, **directive)
        assert copied["CopyObjectResult"]["ETag"] == f'"{hashlib.md5(BODY).hexdigest()}"'
        assert s3.read(key) == BODY
        assert s3.client.head_object(Bucket=s3.bucket, Key=key)["Metadata"] == metadata
    upload = {"Bucket": s3.bucket, "Key": "parts"}
    upload["UploadId"] = s3.client.create_multipart_upload(**upload)["UploadId"]
    source = {"Bucket": s3.bucket, "Key": "big"}
    asked = f"bytes={PART + 2}-{PART + 4}"
    part = s3.client.upload_part_copy(**upload, PartNumber=1, CopySource=source, CopySourceRange=asked)
    named = [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]
    s3.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": named})
    assert s3.read("parts") == BODY[2:5]
    missing = {"Bucket": s3.bucket, "Key": "missing"}
    assert s3.error_of("copy_object", Key="x", CopySource=missing) == ("NoSuchKey", 404)


def test_deleted_objects_are_gone(s3: Target) -> None:
    for key in ("a/1", "a/2", "a/3", "é&<"):
        s3.put(key, BODY)
    s3.client.delete_object(Bucket=s3.bucket, Key="a/1")
    s3.client.delete_object(Bucket=s3.bucket, Key="never-there")
    assert s3.error_of("get_object", Key="a/1") == ("NoSuchKey", 404)
    named = {"Objects": [{"Key": "a/2"}, {"Key": "never-there"}, {"Key": "é&<"}]}
    answer = s3.client.delete_objects(Bucket=s3.bucket, Delete=named)
    assert (
        sorted(entry["Key"] for entry in answer["Deleted"]) == ["a/2", "never-there", "é&<"] and "Errors" not in answer
    )
    assert s3.keys() == ["a/3"]
    rest = s3.client.delete_objects(Bucket=s3.bucket, Delete={"Objects": [{"Key": "a/3"}], "Quiet": True})
    assert "Errors" not in rest and (s3.moto or "Deleted" not in rest)  # moto is never quiet
    assert s3.keys() == []
    s3.put("a/1", b"back")
    assert s3.read("a/1") == b"back" and s3.keys() == ["a/1"]
