"""train.py on two ranks of unequal shards: none waits forever, and both train one model."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from launcher import demo
from launcher.bundled import SCRIPTS
from local_jobs import EFS
from sagemaker_channels import Checkpoints, contract
from torch_ranks import torch_ranks
from train import main

REPOSITORY = Path(__file__).parents[3]
SPLIT = (33, 9, 1)  # 17 and 16 images of train: three batches of eight and two; one image of test
PATHS = [str(REPOSITORY / "entrypoints"), str(REPOSITORY / "tests/data")]  # users_model


def forked(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run two ranks of a script without torchrun, which takes seconds."""
    return torch_ranks(2, *command, cwd=folder, environ={"PYTHONPATH": os.pathsep.join(PATHS), **variables})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An /opt/ml with the demo's channels, all by File."""
    demo.make_demo(tmp_path / "data", SPLIT)
    folders = {
        "train": "s3/my-bucket/digits/train",
        "test": "s3/my-bucket/digits/test",
        "train_lst": f"efs/{EFS}/digits/lists/train",
        "test_lst": "s3/my-bucket/digits/lists/test",
    }
    root = tmp_path / "ml"
    (root / contract.CONFIG_DIR).mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir()
    config = {channel: {"TrainingInputMode": "File"} for channel in folders}
    (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(config))
    for channel, folder in folders.items():
        (root / contract.DATA_DIR / channel).symlink_to(tmp_path / "data" / folder)
    return root


OPTIONS = ["--image-mode", "L", "--batch-size", "8", "--epochs", "3", "--model", "users_model:make"]


def train(root: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return forked(root.parent, str(SCRIPTS / "train.py"), *OPTIONS, SAGEMAKER_BASE_DIR=str(root), **variables)


def test_stop_of_one_rank_stops_all_and_any_number_resumes(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks, one, and two again: each epoch sees each image once, or the job would end with an error."""
    # Rank 1's first step of the second epoch, of three: both ranks stop after it.
    stopped = train(root, STOP_AT="train 4", STOP_RANK="1")
    assert stopped.returncode != 0
    assert "written: 1 epoch(s) and 16 image(s) are done" in stopped.stdout, stopped.stdout + stopped.stderr
    assert Checkpoints(root / contract.CHECKPOINT_DIR).latest() == 4
    monkeypatch.syspath_prepend(str(REPOSITORY / "tests/data"))
    monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(root))
    monkeypatch.setenv("STOP_AT", "train 5")  # the three that the second epoch has left, and two of the third's five
    with pytest.raises(SystemExit):
        main([*OPTIONS, "--num-threads", "1"])
    printed = capsys.readouterr().out
    assert "1 epoch(s) and 16 image(s) are done" in printed
    assert "written: 2 epoch(s) and 16 image(s) are done" in printed
    monkeypatch.delenv("STOP_AT")
    done = train(root)
    assert done.returncode == 0, done.stderr
    assert "2 epoch(s) and 16 image(s) are done" in done.stdout
    metrics = json.loads((root / contract.OUTPUT_DATA_DIR / "metrics.json").read_text())
    assert [each["epoch"] for each in metrics["epochs"]] == [1, 2, 3]
    counts = {channel["channel"]: channel["samples"] for channel in metrics["channels"]}
    assert counts["train"] == SPLIT[0] and counts["test"] == SPLIT[2]  # over both ranks
    assert metrics["test"].keys() == {"test_loss", "test_accuracy"}


def test_error_of_one_rank_ends_all(root: Path) -> None:
    folder = root / contract.DATA_DIR / "train_lst"
    lst = folder.resolve() / "train.lst"
    first, *others = sorted(lst.read_text().splitlines(keepends=True), key=lambda line: line.split("\t")[2])
    lst.write_text("".join(others))
    done = train(root)
    assert done.returncode != 0
    path = first.split("\t")[2].strip()
    assert f"train: channel 'train' and its list 'train_lst': image '{path}' has no line in the list" in done.stderr
