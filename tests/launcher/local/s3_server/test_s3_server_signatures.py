"""The embedded S3 server answers only requests that are signed with its keys, and that are for it."""

from __future__ import annotations

import http.client
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore import UNSIGNED
from s3torchconnector import S3IterableDataset

from patience import PATIENCE
from s3_objects import BODY, NAME, client_of, refusal, signed


def answer(method: str, url: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Return status and body of the response to a request with these headers only."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=PATIENCE)
    with closing(connection):
        connection.request(method, url.partition(place.netloc)[2], body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


@pytest.fixture
def url(endpoint: str, s3: Any) -> str:
    s3.put_object(**NAME, Body=BODY)
    return f"{endpoint}/bucket/key"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["", "?acl", "/../../", "?list-type=2", "?session"])
def test_unsigned_request_is_refused(url: str, s3: Any, method: str, path: str, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    status, body = answer(method, url + path, b"other" if method == "PUT" else None)
    assert status == 403 and (method == "HEAD" or "<Code>AccessDenied</Code>" in body)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_anonymous_client_is_refused_with_the_remedy(endpoint: str, url: str) -> None:
    with pytest.raises(Exception, match="AWS_ACCESS_KEY_ID"):
        client_of(endpoint, signature_version=UNSIGNED).get_object(**NAME)


def test_only_the_signed_request_is_answered(url: str) -> None:
    headers = signed("GET", f"{url}?partNumber=1", Range="bytes=0-3", **{"x-amz-meta-a": "b  c"})
    assert answer("GET", f"{url}?partNumber=1", **headers)[0] == 206
    changed = {
        "method": ("HEAD", f"{url}?partNumber=1", headers),
        "path": ("GET", f"{url}2?partNumber=1", headers),
        "query": ("GET", f"{url}?partNumber=2", headers),
        "one more parameter": ("GET", f"{url}?partNumber=1&versionId=null", headers),
        "signed header": ("GET", f"{url}?partNumber=1", {**headers, "Range": "bytes=0-4"}),
        "signature": ("GET", f"{url}?partNumber=1", {**headers, "Authorization": headers["Authorization"][:-1]}),
        "secret": ("GET", f"{url}?partNumber=1", signed("GET", f"{url}?partNumber=1", "other")),
        "added header": ("GET", f"{url}?partNumber=1", {**headers, "x-amz-copy-source": "bucket/other"}),
        "key id": (
            "GET",
            f"{url}?partNumber=1",
            {**headers, "Authorization": headers["Authorization"].replace("=test/", "=toast/")},
        ),
    }
    for what, (method, place, sent) in changed.items():
        assert answer(method, place, **sent)[0] == 403, what


@pytest.mark.parametrize("authorization", ["", "AWS test:x", "Basic dGVzdDp0ZXN0", "AWS4-HMAC-SHA256 Credential=,"])
def test_malformed_authorization_is_refused(url: str, authorization: str) -> None:
    assert answer("GET", url, Authorization=authorization)[0] == 403


@pytest.mark.parametrize("operation", ["get_object", "put_object"])
def test_presigned_url_is_valid_for_its_request(endpoint: str, url: str, s3: Any, operation: str) -> None:
    method, body = ("GET", None) if operation == "get_object" else ("PUT", b"new")
    presigned = client_of(endpoint, signature_version="s3v4").generate_presigned_url(operation, NAME, ExpiresIn=60)
    assert answer(method, presigned, body)[0] == 200
    assert answer("DELETE", presigned)[0] == 403
    assert answer(method, presigned.replace("/key?", "/other?"), body)[0] == 403
    assert answer(method, f"{presigned}&versionId=null&uploads", body)[0] == 403
    assert answer(method, presigned, body, **{"x-amz-copy-source": "bucket/key"})[0] == 403
    assert answer(method, presigned.replace("xpires=", "xpires=9"), body)[0] == 403


@pytest.fixture
def directory_bucket(tmp_path: Path) -> str:
    name = "b--use1-az4--x-s3"
    (tmp_path / "s3" / name / "p").mkdir(parents=True)
    (tmp_path / "s3" / name / "p" / "a").write_bytes(BODY)
    return name


def test_session_of_s3_express_has_the_clients_own_keys(endpoint: str, directory_bucket: str) -> None:
    session = client_of(endpoint).create_session(Bucket=directory_bucket)["Credentials"]
    assert (session["AccessKeyId"], session["SecretAccessKey"]) == ("test", "test")
    assert client_of(endpoint).get_object(Bucket=directory_bucket, Key="p/a")["Body"].read() == BODY


def test_connector_reads_a_directory_bucket(endpoint: str, directory_bucket: str, credentials: None) -> None:
    dataset = S3IterableDataset.from_prefix(f"s3://{directory_bucket}/p/", region="us-east-1", endpoint=endpoint)
    assert [entry.read() for entry in dataset] == [BODY]


def test_each_refusal_is_one_of_s3(endpoint: str, s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY)
    other = client_of(endpoint)
    other._request_signer._credentials.secret_key = "other"
    assert refusal(other.get_object, **NAME) == "SignatureDoesNotMatch"
    other._request_signer._credentials.access_key = "other"
    assert refusal(other.get_object, **NAME) == "InvalidAccessKeyId"
