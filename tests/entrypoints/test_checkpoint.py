"""Checkpoints come back from a directory and from a bucket, and are never seen half written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from faulty_s3 import Store
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.checkpoint import load_checkpoint, save_checkpoint
from sagemaker_channels.errors import ChannelError
from served_bucket import served_bucket


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty s3://bucket; what is written to it appears below the folder."""
    with served_bucket(tmp_path, monkeypatch):
        yield tmp_path / "overlay"


def state(seed: int) -> dict[str, Any]:
    return {"weights": torch.full((300, 1000), float(seed)), "epoch": seed, "name": "digits"}


class Unwritable:
    """Fails in the middle of being saved."""

    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be saved")


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return torch.equal(left["weights"], right["weights"]) and left["epoch"] == right["epoch"]


def test_checkpoint_in_a_directory_loads(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints" / "last.pt"
    for seed in (1, 2):
        save_checkpoint(state(seed), file)
        assert same(load_checkpoint(file), state(seed))
    assert list(file.parent.iterdir()) == [file]


def test_failed_save_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    save_checkpoint(state(1), file)
    with pytest.raises(RuntimeError, match="cannot be saved"):
        save_checkpoint({**state(2), "bad": Unwritable()}, file)
    assert same(load_checkpoint(file), state(1))
    assert list(tmp_path.iterdir()) == [file]


def test_checkpoint_in_a_bucket_loads(bucket: Path) -> None:
    for seed in (1, 2):
        save_checkpoint(state(seed), "s3://bucket/job/last.pt")
        assert same(load_checkpoint("s3://bucket/job/last.pt"), state(seed))
    with pytest.raises(RuntimeError, match="cannot be saved"):
        save_checkpoint({**state(3), "bad": Unwritable()}, "s3://bucket/job/last.pt")
    assert same(load_checkpoint("s3://bucket/job/last.pt"), state(2))


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("place", ["s3://bucket/none.pt", "s3://no-bucket/none.pt", "none.pt"])
def test_missing_checkpoint_raises_file_not_found(tmp_path: Path, place: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        load_checkpoint(place if place.startswith("s3:") else tmp_path / place)


def test_loading_runs_no_code(tmp_path: Path) -> None:
    torch.save({"path": Path("/")}, tmp_path / "code.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        load_checkpoint(tmp_path / "code.pt")


FULL = """
import os, sys, torch
from sagemaker_channels.checkpoint import load_checkpoint, save_checkpoint
from sagemaker_channels.errors import ChannelError
file = sys.argv[1] + "/disk/last.pt"
save_checkpoint({"a": 1}, file)
for size in (300_000, 3_000_000):
    try:
        save_checkpoint({"a": torch.zeros(size)}, file)
    except ChannelError as error:
        print(error)
print(load_checkpoint(file), os.listdir(sys.argv[1] + "/disk"))
"""


def test_full_disk_is_reported_with_path_and_bytes(tmp_path: Path) -> None:
    """torch says `unexpected pos 704 vs 598` of it."""
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=1m none "$1/disk" && exec "$0" -c "$2" "$1"'
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("needs namespaces")
    command = [*inside, "sh", "-c", script, sys.executable, str(tmp_path), FULL]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second, left = done.stdout.splitlines()
    for said in (first, second):
        assert re.fullmatch(
            rf"{tmp_path}/disk/last.pt cannot be written: the disk is full after [1-9][\d,]+ bytes of it, and [\d,]+ are free; "
            "make room, keep fewer checkpoints, or save to a larger disk or to an s3:// URI",
            said,
        )
    assert left == "{'a': 1} ['last.pt']"


def save() -> None:
    save_checkpoint(state(2), "s3://bucket/last.pt")


def load() -> None:
    load_checkpoint("s3://bucket/last.pt")


@pytest.mark.parametrize("what", [save, load])
def test_silent_store_ends_saving_and_loading_by_the_readers_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]
) -> None:
    save_checkpoint(state(1), "s3://bucket/last.pt")
    monkeypatch.setenv(contract.READ_WAIT_VARIABLE, "0.5")
    store.speaking.clear()
    with pytest.raises(ChannelError, match=r"s3://bucket/last.pt has sent nothing .* LAUNCHER_READ_WAIT_SECONDS=0.5\)"):
        what()


def test_upload_that_was_given_up_is_not_stored_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved may have changed by then: half of it would be of another step."""
    save_checkpoint(state(1), "s3://bucket/last.pt")
    monkeypatch.setenv(contract.READ_WAIT_VARIABLE, "0.5")
    store.hushed.add("/bucket/last.pt")
    with pytest.raises(ChannelError, match="has sent nothing"):
        save_checkpoint({"weights": torch.zeros(10_000_000)}, "s3://bucket/last.pt")
    monkeypatch.delenv(contract.READ_WAIT_VARIABLE)
    store.hushed.clear()
    for thread in threading.enumerate():
        if thread.name == "s3 request":
            thread.join(PATIENCE)
    assert same(load_checkpoint("s3://bucket/last.pt"), state(1))


def test_refusal_states_what_the_role_lacks(store: Store) -> None:
    store.faults["/bucket/last.pt"] = [403] * 20
    with pytest.raises(
        ChannelError, match=r"s3://bucket/last.pt cannot be written: access is denied .403.* s3:PutObject"
    ):
        save()
    with pytest.raises(ChannelError, match=r"s3://bucket/last.pt cannot be read: access is denied .403"):
        load()


def test_transient_failure_is_retried(store: Store) -> None:
    store.faults["/bucket/last.pt"] = [503] * 6
    save()
    store.faults["/bucket/last.pt"] = [500] * 6
    assert same(load_checkpoint("s3://bucket/last.pt"), state(2))
