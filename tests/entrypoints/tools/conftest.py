"""What the tests of resharding share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty_s3 import Store, faulty_s3
from resharded import COUNT, set_up
from sagemaker_channels import contract


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A host with the channel `data`, 100 objects, and the S3 that it writes to."""
    set_up(tmp_path / "ml", range(COUNT))
    monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(tmp_path / "ml"))
    with faulty_s3(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def bucket(store: Store, tmp_path: Path) -> Path:
    """The folder of what is written to s3://bucket."""
    return tmp_path / "overlay" / "bucket"
