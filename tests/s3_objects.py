"""What the tests of the embedded S3 server share: a client, a bucket, and the code of a refusal."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from launcher.aws.remote_objects import RemoteObjects
from launcher.aws.session import Account

BODY = b"0123456789"
PART = 5 * 1024 * 1024  # bytes: S3's minimum
NAME = {"Bucket": "bucket", "Key": "key"}


def client_of(url: str, key_id: str = "test", secret: str = "test", **config: Any) -> Any:
    """Return a client that neither retries nor uses a proxy or the user's settings."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, proxies={}, **config),
    )


class _OfClient(Account):
    """An account whose S3 is that of a client."""

    def __init__(self, client: Any) -> None:
        super().__init__(region="us-east-1")
        assert self.region  # opens the session
        self._client = client

    def client(self, service: str) -> Any:
        return self._client


def remote_objects(client: Any) -> RemoteObjects:
    """Return the objects that a client reads."""
    return RemoteObjects(_OfClient(client))


class _Signer(S3SigV4Auth):
    """Signs a hash of the body that is stated, instead of computing it."""

    def __init__(self, secret: str, payload: str) -> None:
        super().__init__(Credentials("test", secret), "s3", "us-east-1")
        self._payload = payload

    def payload(self, request: AWSRequest) -> str:
        return self._payload


def signed(method: str, url: str, secret: str = "test", **headers: str) -> dict[str, Any]:
    """Return the headers of a request to a URL with a signature by version 4, as botocore makes it."""
    parts = urlsplit(url)
    path = quote(unquote_to_bytes(parts.path), safe="/~")
    request = AWSRequest(method, parts._replace(path=path).geturl(), headers={**headers, "Host": parts.netloc})
    _Signer(secret, headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")).add_auth(request)
    return dict(request.headers)


def client_of_job(environ: Mapping[str, str]) -> Any:
    """Return a client of the store that a job's variables name."""
    return client_of(*(environ[f"AWS_{name}"] for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY")))


@dataclass(frozen=True)
class Bucket:
    """A bucket at an endpoint, and a client of it."""

    url: str
    bucket: str
    client: Any

    def error_of(self, operation: str, **arguments: Any) -> tuple[str, int]:
        """Return code and status of the error with which the operation is refused."""
        with pytest.raises(ClientError) as caught:
            getattr(self.client, operation)(**{"Bucket": self.bucket, **arguments})
        response: Any = caught.value.response
        return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def read(self, key: str, **arguments: Any) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=key, **arguments)["Body"].read())

    def keys(self) -> list[str]:
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=self.bucket).get("Contents", ())]


def refusal(operation: Any, **arguments: Any) -> str:
    """Return the code of the error with which an operation is refused."""
    with pytest.raises(ClientError) as caught:
        operation(**arguments)
    code: str = caught.value.response["Error"]["Code"]
    return code


def text(digest: bytes) -> str:
    """Return a digest as headers have it."""
    return base64.b64encode(digest).decode()
