"""What the tests of the embedded S3 server share: a client, a bucket, and the code of a refusal."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

BODY = b"0123456789"
PART = 5 * 1024 * 1024  # bytes: S3's minimum
NAME = {"Bucket": "bucket", "Key": "key"}


def client_of(url: str, **config: Any) -> Any:
    """Return a client that neither retries nor uses a proxy or the user's settings."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, proxies={}, **config),
    )


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
        return self.client.get_object(Bucket=self.bucket, Key=key, **arguments)["Body"].read()

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
