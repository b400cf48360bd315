"""What the tests of checkpoints share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for checkpoints; of the bucket, `stored` lists the files."""
    if request.param == "folder":
        return str(tmp_path / "checkpoints")
    request.getfixturevalue("store")
    return "s3://bucket/job/checkpoints"
