"""Credentials that expire while objects are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoints.readers import s3_client
from expiring_keys import Keys, issued_keys
from launcher.local.s3_server import serve


@pytest.mark.parametrize(("seconds", "stated"), [(5, 5), (1, 3600)], ids=["as-stated", "sooner-than-stated"])
def test_expired_keys_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, stated: float
) -> None:
    (tmp_path / "s3/bucket").mkdir(parents=True)
    (tmp_path / "s3/bucket/a").write_bytes(b"content")
    keys = Keys(seconds, stated)
    with serve(tmp_path / "s3", tmp_path / "overlay", keys.around) as endpoint, issued_keys(keys, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        while len(keys.used) < 3:
            assert s3_client.fetch("bucket", "a", None, None) == b"content"
