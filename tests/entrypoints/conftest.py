"""What the tests of the container's end share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty_s3 import Store, faulty_s3
from pipe_feeder import make_root
from sagemaker_channels import contract
from sagemaker_channels.sources import object_cache


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test is the only process of its host, whatever started pytest."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pipe without bytes, or whose readers do not find each other, fails its test after half a minute, not after ten."""
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "30")


@pytest.fixture(autouse=True)
def room_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are cached however full the disk of these tests is."""
    monkeypatch.setattr(object_cache, "KEPT_FREE", 0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A bucket with latency and faults, for this process and its children."""
    with faulty_s3(tmp_path, monkeypatch) as store:
        yield store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An /opt/ml with Pipes."""
    make_root(tmp_path)
    return tmp_path
