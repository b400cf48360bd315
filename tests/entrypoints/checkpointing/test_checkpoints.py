"""Checkpoints of one process: what is saved is loaded, in the background, and the last few are kept."""

from __future__ import annotations

import io
import os
import random
import signal
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faulty_s3 import Store
from launcher.bundled import SCRIPTS
from sagemaker_channels import Checkpoints, contract
from sagemaker_channels.checkpointing.files import INDEX, complete
from sagemaker_channels.checkpointing.place import place_of
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources import s3_client
from torch_ranks import torch_processes
from training_parts import losses, parts


def stored(tmp_path: Path) -> list[str]:
    """The checkpoints' files, by their steps."""
    return sorted(f"{int(file.parent.name.split('-')[1])}/{file.stem}" for file in tmp_path.rglob("step-*/*"))


def files(tmp_path: Path, step: int) -> Path:
    (folder,) = tmp_path.rglob(f"step-{step:010}-*")
    return folder


def test_resumed_training_has_the_same_losses(place: str) -> None:
    of = parts()
    losses(of)
    with Checkpoints(place) as checkpoints:
        assert checkpoints.load(**of) is None and checkpoints.latest() is None
        checkpoints.save(3, **of)
        expected = losses(of), random.random(), np.random.random()
    other = parts(seed=1)
    random.seed(5)
    with Checkpoints(place) as checkpoints:
        assert checkpoints.latest() == 3
        assert checkpoints.load(**other) == 3
    assert (losses(other), random.random(), np.random.random()) == expected
    assert other["loader"].position == of["loader"].position == 36


def test_save_returns_while_it_is_stored_and_keeps_what_was_then(store: Store, tmp_path: Path) -> None:
    of = parts()
    with Checkpoints("s3://bucket/job") as checkpoints:
        store.speaking.clear()
        checkpoints.save(1, **of)
        weights = {name: value.clone() for name, value in of["model"].state_dict().items()}
        losses(of)
        assert stored(tmp_path) == []
        store.speaking.set()
    other = parts(seed=1)
    assert Checkpoints("s3://bucket/job").load(**other) == 1
    assert all(torch.equal(value, weights[name]) for name, value in other["model"].state_dict().items())


def test_last_checkpoints_are_kept(place: str, tmp_path: Path) -> None:
    of = parts()
    with Checkpoints(place, keep=2) as checkpoints:
        for step in (1, 2, 3, 9):
            checkpoints.save(step, **of)
    assert stored(tmp_path) == ["3/rank-0-of-1", "9/rank-0-of-1"]
    with Checkpoints(place, keep=1) as checkpoints:  # gone back on purpose: what is ahead stays
        checkpoints.save(4, **of)
        checkpoints.wait()
    assert stored(tmp_path) == ["4/rank-0-of-1", "9/rank-0-of-1"]
    with Checkpoints(place, keep=1) as checkpoints:  # loading removes nothing
        checkpoints.load(**of)
    assert stored(tmp_path) == ["4/rank-0-of-1", "9/rank-0-of-1"]


def test_later_of_two_saves_of_a_step_is_loaded(place: str) -> None:
    of = parts()
    with Checkpoints(place) as checkpoints:
        for position in (1, 2):
            of["loader"].position = position
            checkpoints.save(1, **of)
    assert Checkpoints(place).load(**of) == 1 and of["loader"].position == 2


def test_default_place_is_sagemakers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(tmp_path))
    with Checkpoints() as checkpoints:
        checkpoints.save(1, **parts())
    assert [file.parent for file in tmp_path.rglob("step-*")] == [tmp_path / "checkpoints"]


@pytest.mark.parametrize("kept", [True, False])
def test_checkpoints_that_nothing_keeps_are_announced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kept: bool
) -> None:
    """SageMaker makes the folder before the job starts if the job has a checkpoint_config."""
    monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv("TRAINING_JOB_NAME", "digits-1")
    if kept:
        (tmp_path / "checkpoints").mkdir()
    with Checkpoints() as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, **parts())
    warned = capsys.readouterr().err.count("add checkpoint_config: {s3_uri: s3://bucket/prefix} to the spec")
    assert warned == (0 if kept else 1)


def damage(folder: Path, how: str) -> None:
    file = folder / "rank-0-of-1.zip"
    content = file.read_bytes()
    if how == "a missing file":
        file.rename(folder / "rank-0-of-2.zip")
    elif how == "no file":
        file.rename(folder / f".{file.name}.123.unfinished")
    elif how == "half a file":
        file.write_bytes(content[: len(content) // 2])
    elif how == "another file":
        file.write_bytes(bytes(len(content)))
    elif how == "a changed tensor":
        with zipfile.ZipFile(file) as archive:
            first = archive.getinfo("0")
        at = first.header_offset + 30 + len(first.filename)  # the first byte after the header
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    else:
        with zipfile.ZipFile(file) as archive:
            records = {name: archive.read(name) for name in archive.namelist()}
        index, changed = torch.load(io.BytesIO(records[INDEX])), io.BytesIO()
        torch.save({**index, "format": 1} if how == "another format" else {**index, "random": Path("/")}, changed)
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in {**records, INDEX: changed.getvalue()}.items():
                archive.writestr(name, data)


@pytest.mark.parametrize(
    ("how", "log"),
    [
        ("no file", "the file of rank 0 is missing, so its save did not end"),
        ("a missing file", "the file of rank 1 is missing, so its save did not end"),
        ("half a file", "rank-0-of-1.zip was changed or damaged: File is not a zip file"),
        ("another file", "rank-0-of-1.zip was changed or damaged: File is not a zip file"),
        ("a changed tensor", "rank-0-of-1.zip was changed or damaged: Bad CRC-32 for file '0'"),
        ("another format", "its format is 1, and this version of sagemaker_channels reads 3"),
        ("code", "it has more than tensors, numbers, texts and containers, and loading it could run code: "),
    ],
)
def test_incomplete_checkpoint_is_ignored_and_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str, log: str
) -> None:
    of = parts()
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            of["loader"].position = step
            checkpoints.save(step, **of)
    damage(files(tmp_path, 2), how)
    other = parts(seed=1)
    assert Checkpoints(tmp_path).load(**other) == 1 and other["loader"].position == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"the checkpoint {files(tmp_path, 2)} is ignored: ") and log in line
    damage(files(tmp_path, 1), how)
    before = other["model"][0].weight.clone()
    other["model"][0].weight.data += 1
    assert Checkpoints(tmp_path).load(**other) is None
    assert torch.equal(other["model"][0].weight, before + 1)


def test_failed_save_is_raised_by_the_next_call(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.READ_WAIT_VARIABLE, "0.5")
    store.speaking.clear()
    checkpoints = Checkpoints("s3://bucket/job")
    checkpoints.save(1, **parts())
    with pytest.raises(
        ChannelError, match=r"of step 1 was not saved: rank 0: s3://bucket/job/step-.* has sent nothing"
    ):
        checkpoints.save(2, **parts())
    checkpoints.save(2, **parts())
    with pytest.raises(ChannelError, match="step 2 was not saved"):
        checkpoints.close()
    assert stored(tmp_path) == []


def test_wait_that_a_signal_interrupts_can_be_repeated(store: Store) -> None:
    """The handler's last save must not change what is still being stored."""

    def stop(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, stop)
    of = parts()
    try:
        with Checkpoints("s3://bucket/job") as checkpoints:
            store.speaking.clear()
            checkpoints.save(1, **of)
            weights = of["model"][0].weight.clone()
            signal.alarm(1)
            with pytest.raises(InterruptedError):
                checkpoints.wait()
            store.speaking.set()
            losses(of)
            checkpoints.save(2, **of)
    finally:
        signal.signal(signal.SIGALRM, before)
    place = place_of("s3://bucket/job")
    newer, older = complete(place)
    assert [newer.step, older.step] == [2, 1]
    place.remove(f"{newer.name}/{newer.files[0]}")
    assert Checkpoints("s3://bucket/job").load(**of) == 1
    assert torch.equal(of["model"][0].weight, weights)


def test_folder_that_cannot_be_made_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checkpoints = Checkpoints(tmp_path / "file/checkpoints")
    checkpoints.save(1, **parts())
    with pytest.raises(
        ChannelError, match=r"rank-0-of-1\.zip cannot be written: Not a directory; give a folder that this job may"
    ):
        checkpoints.close()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Checkpoints("s3://"), "give a folder or s3://bucket/prefix"),
        (lambda: Checkpoints(__file__), "is a file; give a folder or s3://bucket/prefix"),
        (lambda: Checkpoints("x", keep=0), "keep is 0; give a whole number from 1 on"),
        (lambda: Checkpoints("x").save(-1), "step is -1; give a whole number from 0 on"),
        (
            lambda: Checkpoints("x").save(1, optimizer=parts()["optimizer"]),
            "an optimizer needs its model in the same call",
        ),
    ],
)
def test_misuse_is_refused(make: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make()


SCRIPT = """
import sys
from training_parts import parts
from sagemaker_channels import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
checkpoints.save(7, **parts())
"""


def test_end_of_the_script_waits_for_the_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environ = {"PYTHONPATH": os.pathsep.join(map(str, (SCRIPTS, Path(__file__).parents[2])))}
    done = torch_processes("script.py", "checkpoints", cwd=tmp_path, environs=[environ])
    assert done.returncode == 0, done.stderr
    assert Checkpoints(tmp_path / "checkpoints").latest() == 7


class Images(torch.utils.data.Dataset[int]):
    """Objects of the bucket, read in the workers of a DataLoader."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> int:
        return len(s3_client.content("bucket", "image"))


def test_workers_that_are_forked_during_a_save_read_from_s3(store: Store, tmp_path: Path) -> None:
    """They are, at the beginning of the next epoch: a process that uploads waits before it forks."""
    (store.folder / "image").write_bytes(b"123")
    assert s3_client.content("bucket", "image") == b"123"
    store.silent_methods.update(("POST", "PUT"))
    with Checkpoints("s3://bucket/job") as checkpoints:
        checkpoints.save(1, **parts())
        loader = torch.utils.data.DataLoader(Images(), num_workers=2, multiprocessing_context="fork")
        assert [int(size) for size in loader] == [3] * 4
        assert stored(tmp_path) == []
        store.silent_methods.clear()
    assert Checkpoints("s3://bucket/job").latest() == 1


def test_workers_that_live_on_do_not_keep_checkpoints_from_closing(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, **parts())
        checkpoints.wait()
        numbers: Any = range(8)
        batches = iter(torch.utils.data.DataLoader(numbers, num_workers=1, multiprocessing_context="fork"))
        assert next(batches) == 0
    assert [int(batch) for batch in batches] == list(range(1, 8))
