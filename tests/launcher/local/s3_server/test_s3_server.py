"""The embedded S3 server answers as S3 does: every test here also runs against moto, over HTTP.

Three endpoints: our server with the objects in its data folder, our server with the objects put by the client (so they are in the
overlay), and moto.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from s3_objects import BODY, Bucket, client_of
from served_bucket import serve

pytestmark = pytest.mark.usefixtures("credentials")

# In an order that is not theirs: `-` and `.` sort before `/`, and UTF-16 would put the last two the other way round.
KEYS = ("b", "a/c/d", "a.txt", "a/b", "a-b", "a0", "Z", "é/x y+z%20?", "a/c/\N{LATIN SMALL LIGATURE FF}", "a/c/😀")


@dataclass(frozen=True)
class Endpoint(Bucket):
    store: Callable[[str, bytes], object]


@pytest.fixture(params=["folder", "overlay", "moto"])
def s3(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    if request.param == "moto":
        yield connect(request.getfixturevalue("moto_url"), bucket)
    else:
        with serve(tmp_path / "s3", tmp_path / "overlay") as url:
            endpoint = connect(url, bucket)
            if request.param == "folder":

                def store(key: str, body: bytes) -> None:
                    path = tmp_path / "s3" / bucket / key
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(body)

                (tmp_path / "s3" / bucket).mkdir(parents=True)
                endpoint = Endpoint(url, bucket, endpoint.client, store)
            yield endpoint


def connect(url: str, bucket: str) -> Endpoint:
    client = client_of(url)
    client.create_bucket(Bucket=bucket)
    return Endpoint(url, bucket, client, lambda key, body: client.put_object(Bucket=bucket, Key=key, Body=body))


def expected_page(prefix: str, delimiter: str, after: str) -> list[str]:
    """What S3's documentation says a listing holds, worked out key by key."""
    names = set()
    for key in KEYS:
        if key.startswith(prefix):
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            names.add(prefix + head + found if found else key)
    return sorted((name for name in names if name > after), key=str.encode)


def names_of(answer: dict[str, Any]) -> list[str]:
    names = [entry["Key"] for entry in answer.get("Contents", ())]
    return sorted(names + [entry["Prefix"] for entry in answer.get("CommonPrefixes", ())], key=str.encode)


def test_get_and_head_return_content_and_headers(s3: Endpoint) -> None:
    s3.store("a/b.bin", BODY)
    s3.store("empty", b"")
    got = s3.client.get_object(Bucket=s3.bucket, Key="a/b.bin")
    assert got["Body"].read() == BODY and got["ContentLength"] == 10 and got["AcceptRanges"] == "bytes"
    head = s3.client.head_object(Bucket=s3.bucket, Key="a/b.bin")
    listed = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix="a/")["Contents"][0]
    assert got["ETag"] == head["ETag"] == listed["ETag"] and got["ETag"].strip('"') != got["ETag"]
    assert got["LastModified"] == head["LastModified"] == listed["LastModified"].replace(microsecond=0)
    assert got["ContentType"] == head["ContentType"] == "binary/octet-stream"
    assert head["ContentLength"] == listed["Size"] == 10
    assert s3.read("empty") == b""


def test_missing_keys_and_buckets_are_404(s3: Endpoint) -> None:
    s3.store("a/b", BODY)
    assert s3.error_of("get_object", Key="missing") == ("NoSuchKey", 404)
    assert s3.error_of("get_object", Key="a") == ("NoSuchKey", 404), "a folder is no object"
    assert s3.error_of("get_object", Key="a/b/c") == ("NoSuchKey", 404)
    assert s3.error_of("head_object", Key="a/") == ("404", 404)
    operations: dict[str, dict[str, Any]] = {
        "get_object": {"Key": "k"},
        "list_objects_v2": {},
        "put_object": {"Key": "k", "Body": b"x"},
        "create_multipart_upload": {"Key": "k"},
        "get_bucket_location": {},
    }
    for operation, more in operations.items():
        assert s3.error_of(operation, Bucket="no-such-bucket", **more) == ("NoSuchBucket", 404), operation
    assert s3.error_of("head_bucket", Bucket="no-such-bucket") == ("404", 404)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-0", b"0"),
        ("bytes=2-4", b"234"),
        ("bytes=9-9", b"9"),
        ("bytes=5-", b"56789"),
        ("bytes=-3", b"789"),
        ("bytes=-100", BODY),
        ("bytes=4-100", b"456789"),
    ],
)
def test_ranges_return_their_bytes(s3: Endpoint, asked: str, expected: bytes) -> None:
    s3.store("k", BODY)
    got = s3.client.get_object(Bucket=s3.bucket, Key="k", Range=asked)
    assert got["Body"].read() == expected and got["ContentLength"] == len(expected)
    start = BODY.index(expected)
    assert got["ContentRange"] == f"bytes {start}-{start + len(expected) - 1}/10"
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    head = s3.client.head_object(Bucket=s3.bucket, Key="k", Range=asked)
    assert head["ContentLength"] == len(expected)


def test_unsatisfiable_ranges_are_refused(s3: Endpoint) -> None:
    s3.store("k", BODY)
    s3.store("empty", b"")
    for asked in ("bytes=10-", "bytes=10-20", "bytes=-0"):
        assert s3.error_of("get_object", Key="k", Range=asked) == ("InvalidRange", 416), asked
    assert s3.error_of("get_object", Key="empty", Range="bytes=0-") == ("InvalidRange", 416)
    for asked in ("bytes=x-y", "bytes=5-2"):
        assert s3.read("k", Range=asked) == BODY, asked


def test_conditional_requests_follow_s3(s3: Endpoint) -> None:
    s3.store("k", BODY)
    head = s3.client.head_object(Bucket=s3.bucket, Key="k")
    tag = head["ETag"]
    assert s3.read("k", IfMatch=tag) == s3.read("k", IfNoneMatch='"other"') == BODY
    assert s3.error_of("get_object", Key="k", IfMatch='"other"') == ("PreconditionFailed", 412)
    assert s3.error_of("get_object", Key="k", IfNoneMatch=tag) == ("304", 304)
    assert s3.error_of("put_object", Key="k", Body=b"new", IfNoneMatch="*") == ("PreconditionFailed", 412)
    s3.client.put_object(Bucket=s3.bucket, Key="new", Body=b"new", IfNoneMatch="*")
    assert (s3.read("k"), s3.read("new")) == (BODY, b"new")


@pytest.mark.parametrize("delimiter", ["", "/", "c"])
def test_listing_returns_keys_and_prefixes_in_pages(
    s3: Endpoint, request: pytest.FixtureRequest, delimiter: str
) -> None:
    for key in KEYS:
        s3.store(key, key.encode())
    # moto omits keys between the pages of the first form if there is a delimiter.
    first_form = [] if delimiter and "moto" in request.node.callspec.id else ["list_objects"]
    for prefix in ("", "a", "a/", "a/c", "a/c/", "é/", "nothing", "a/b/"):
        expected = expected_page(prefix, delimiter, "")
        asked = {"Bucket": s3.bucket, "Prefix": prefix, "Delimiter": delimiter}
        whole = s3.client.list_objects_v2(**asked)
        assert names_of(whole) == expected and whole["KeyCount"] == len(expected) and not whole["IsTruncated"]
        assert [entry["Key"] for entry in whole.get("Contents", ())] == [name for name in expected if name in KEYS]
        assert all(entry["Size"] == len(entry["Key"].encode()) for entry in whole.get("Contents", ()))
        for operation in ("list_objects_v2", *first_form):
            pages = list(s3.client.get_paginator(operation).paginate(**asked, PaginationConfig={"PageSize": 2}))
            assert [name for page in pages for name in names_of(page)] == expected, (operation, prefix)
            assert all(page["MaxKeys"] == 2 for page in pages)
        for after in ("a", "a/b", "a/c", "a/c/d", "zzz"):
            later = expected_page(prefix, delimiter, after)
            assert names_of(s3.client.list_objects_v2(**asked, StartAfter=after)) == later, (prefix, after)
            if first_form:
                assert names_of(s3.client.list_objects(**asked, Marker=after)) == later, (prefix, after)


def test_listing_of_an_empty_prefix_is_empty(s3: Endpoint) -> None:
    s3.store("k", BODY)
    none = s3.client.list_objects_v2(Bucket=s3.bucket, MaxKeys=0)
    assert none["KeyCount"] == 0 and not none["IsTruncated"] and "Contents" not in none


@pytest.mark.parametrize("key", ["a//b", "/a", "a/", "a/./b", "../a", "..", "a b+c%2F?#&é", "x" * 1024, "<&>'"])
def test_keys_that_cannot_be_paths_are_stored(s3: Endpoint, key: str) -> None:
    s3.client.put_object(Bucket=s3.bucket, Key=key, Body=key.encode())
    assert s3.read(key) == key.encode()
    assert names_of(s3.client.list_objects_v2(Bucket=s3.bucket)) == [key]
    s3.client.delete_object(Bucket=s3.bucket, Key=key)
    assert s3.error_of("get_object", Key=key) == ("NoSuchKey", 404)


def test_key_may_be_object_and_folder(s3: Endpoint) -> None:
    for key in ("a", "a/b", "a/", "a/b/c"):
        s3.client.put_object(Bucket=s3.bucket, Key=key, Body=key.encode())
    assert names_of(s3.client.list_objects_v2(Bucket=s3.bucket)) == ["a", "a/", "a/b", "a/b/c"]
    assert names_of(s3.client.list_objects_v2(Bucket=s3.bucket, Delimiter="/")) == ["a", "a/"]
    assert [s3.read(key) for key in ("a", "a/b", "a/", "a/b/c")] == [b"a", b"a/b", b"a/", b"a/b/c"]
    s3.client.delete_object(Bucket=s3.bucket, Key="a")
    s3.client.put_object(Bucket=s3.bucket, Key="a/b", Body=b"again")
    assert names_of(s3.client.list_objects_v2(Bucket=s3.bucket)) == ["a/", "a/b", "a/b/c"]
    assert s3.read("a/b") == b"again"


def test_buckets_are_made_and_listed(s3: Endpoint) -> None:
    other = s3.bucket + "-2"
    s3.client.create_bucket(Bucket=other)
    s3.client.create_bucket(Bucket=other)
    assert {s3.bucket, other} <= {bucket["Name"] for bucket in s3.client.list_buckets()["Buckets"]}
    assert s3.client.get_bucket_location(Bucket=other)["LocationConstraint"] is None
