"""The local run's S3 server, with keys that the tests' clients have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from launcher.local import s3_server
from launcher.local.s3_server.http_server import Answer
from launcher.local.s3_server.store import Store

_ISSUED = {f"ASIA{number}": "secret" for number in range(1000)}  # those of expiring_keys.py
KEYS = {"any": "any", "test": "test", "stand-in-key-id": "stand-in-secret", **_ISSUED}


def serve(data: Path, overlay: Path, around: Callable[[Answer], Answer] | None = None) -> AbstractContextManager[str]:
    """Serve the buckets in the folder `data`, with all writes in another one; yields the endpoint."""
    return s3_server.serve(Store(data, overlay), KEYS, around)


@contextmanager
def served_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, around: Callable[[Answer], Answer] | None = None
) -> Iterator[Path]:
    """Serve s3://bucket and yield its folder; what is written appears below `overlay/bucket` in `tmp_path`."""
    folder = tmp_path / "s3" / "bucket"
    folder.mkdir(parents=True, exist_ok=True)
    with serve(tmp_path / "s3", tmp_path / "overlay", around) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        yield folder
