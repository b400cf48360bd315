"""The folder and the account of tests that submit a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from aws_stand_in import StandIn
from submitted_spec import SPEC


@pytest.fixture
def submittable(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a working directory with job.yaml and its code, and the bucket that both name."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print('trained')\n")
    (tmp_path / "job.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    aws.client("s3").create_bucket(Bucket="mine")
    aws.clear_calls()
