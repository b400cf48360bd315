"""An embedded S3 server on an empty folder, a client with one bucket, and moto to compare with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from s3_objects import client_of
from served_bucket import serve


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "s3" / "data").mkdir(parents=True)
    with serve(tmp_path / "s3", tmp_path / "overlay") as url:
        yield url


@pytest.fixture
def s3(endpoint: str) -> Iterator[Any]:
    client = client_of(endpoint)
    client.create_bucket(Bucket="bucket")
    yield client
    client.close()


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give clients that read the environment the test's credentials and none of the user's settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)  # AWS_CA_BUNDLE among them, with which rclone 1.60 fails
    for name, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
