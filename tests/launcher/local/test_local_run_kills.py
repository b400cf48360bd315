"""Jobs in every mode that are killed and restarted with other numbers; `tests/killed_jobs.py` runs many more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from killed_jobs import MIXED, Trial
from local_jobs import namespaces


@pytest.mark.parametrize(("seed", "channels"), [(0, ["pipe"]), (1, MIXED)], ids=["pipe", "other modes"])
def test_killed_job_reads_each_sample_once_and_leaves_nothing(
    tmp_path: Path, fuse: None, seed: int, channels: list[str]
) -> None:
    namespaces()
    Trial(tmp_path, seed, channels).run(1)
