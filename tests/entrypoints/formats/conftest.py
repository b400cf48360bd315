"""Fixtures of the tests of formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from served_bucket import served_bucket


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with served_bucket(tmp_path, monkeypatch) as folder:
        yield folder
