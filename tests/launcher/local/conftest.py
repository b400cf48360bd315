"""The folder in which the tests of local runs call `launch`, and deliveries of a Pipe channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_jobs import EFS, FSX
from pipe_deliveries import Deliver, pipe_deliveries


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the Pipe channel's objects."""
    path = tmp_path / "data/s3/bucket/train"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def deliver(tmp_path: Path, folder: Path) -> Iterator[Deliver]:
    """A function that makes deliveries of the Pipe channel."""
    with pipe_deliveries(tmp_path) as make:
        yield make
