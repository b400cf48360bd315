"""Checkpoints come back from a directory and from a bucket, and are never seen half written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from entrypoints.checkpoint import load_checkpoint, save_checkpoint
from launcher.local.s3_server import serve


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty s3://bucket; what is written to it appears below the folder."""
    (tmp_path / "s3" / "bucket").mkdir(parents=True)
    with serve(tmp_path / "s3", tmp_path / "overlay") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        yield tmp_path / "overlay"


def state(seed: int) -> dict[str, Any]:
    return {"weights": torch.full((300, 1000), float(seed)), "epoch": seed, "name": "digits"}


class Unwritable:
    """Fails in the middle of being saved."""

    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be saved")


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return torch.equal(left["weights"], right["weights"]) and left["epoch"] == right["epoch"]


def test_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints" / "last.pt"
    for seed in (1, 2):
        save_checkpoint(state(seed), file)
        assert same(load_checkpoint(file), state(seed))
    assert list(file.parent.iterdir()) == [file]


def test_a_failed_save_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    save_checkpoint(state(1), file)
    with pytest.raises(RuntimeError, match="cannot be saved"):
        save_checkpoint({**state(2), "bad": Unwritable()}, file)
    assert same(load_checkpoint(file), state(1))
    assert list(tmp_path.iterdir()) == [file]


def test_a_bucket(bucket: Path) -> None:
    for seed in (1, 2):
        save_checkpoint(state(seed), "s3://bucket/job/last.pt")
        assert same(load_checkpoint("s3://bucket/job/last.pt"), state(seed))
    with pytest.raises(RuntimeError, match="cannot be saved"):
        save_checkpoint({**state(3), "bad": Unwritable()}, "s3://bucket/job/last.pt")
    assert same(load_checkpoint("s3://bucket/job/last.pt"), state(2))


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("place", ["s3://bucket/none.pt", "s3://no-bucket/none.pt", "none.pt"])
def test_no_checkpoint(tmp_path: Path, place: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        load_checkpoint(place if place.startswith("s3:") else tmp_path / place)


def test_loading_runs_no_code(tmp_path: Path) -> None:
    torch.save({"path": Path("/")}, tmp_path / "code.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        load_checkpoint(tmp_path / "code.pt")
