"""An embedded S3 server on an empty folder, and a client with one bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from launcher.local.s3_server import serve


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "s3" / "data").mkdir(parents=True)
    with serve(tmp_path / "s3", tmp_path / "overlay") as url:
        yield url


@pytest.fixture
def s3(endpoint: str) -> Iterator[Any]:
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    secret = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config, **secret)
    client.create_bucket(Bucket="bucket")
    yield client
    client.close()
