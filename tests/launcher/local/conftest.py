"""The folder in which the tests of local runs call `launch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_jobs import EFS, FSX


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with data and code for a job."""
    for index in range(6):
        for folder in ("s3/bucket/train", "s3/bucket/train_old", f"efs/{EFS}/lists", f"fsx/{FSX}/abcdefgh/lists"):
            file = tmp_path / "data" / folder / f"{index}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{folder.rsplit('/', 1)[1]} {index}\n")
    (tmp_path / "src").mkdir()
    return tmp_path
