"""Channels, lists and options that train.py compares and refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.bundled import SCRIPTS
from local_jobs import EFS
from patience import PATIENCE
from sagemaker_channels import contract
from train_runs import own, refusal, run


def test_channels_with_the_same_samples_compare_equal(
    make_root: Callable[..., Path], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_root("ml", images={})
    (root / contract.DATA_DIR / "images").symlink_to(data / f"efs/{EFS}/digits/train")
    run("--epochs", "2", "--compare-channel", "images")
    log = capsys.readouterr().out
    assert len(re.findall("images holds the same samples as train: 90 samples, digest", log)) == 1
    assert re.search(r"^  images +File +90 ", log, re.MULTILINE)


def test_channels_with_other_samples_end_the_job(make_root: Callable[..., Path], data: Path) -> None:
    root = make_root("ml", images={})
    (root / contract.DATA_DIR / "images").symlink_to(data / "s3/my-bucket/digits/train")
    file = own(root, "images") / next((data / "s3/my-bucket/digits/train").iterdir()).name
    file.write_bytes(file.read_bytes() + b"\0")
    assert re.search(
        r"'images' \(90 samples, digest \w{16}\) does not hold the same samples as 'train'",
        refusal("--compare-channel", "images"),
    )


def test_users_own_train_module_makes_the_model(make_root: Callable[..., Path], tmp_path: Path) -> None:
    """The bundled script has the name of a module that many users have."""
    make_root("ml")
    (tmp_path / "train.py").write_text("raise ImportError('the own train.py')")
    command = [sys.executable, str(SCRIPTS / "train.py"), "--image-mode", "L", "--model", "train:make"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, "model 'train:make': the own train.py" in done.stderr) == (1, True), done.stderr


def test_image_without_a_line_is_refused(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    lst = own(root, "train_lst") / "train.lst"
    first, *others = lst.read_text().splitlines(keepends=True)
    lst.write_text("".join(others))
    path = first.split("\t")[2].strip()
    assert re.search(rf"'train' and its list 'train_lst': image '{path}' has no line", refusal("--num-workers", "2"))


def test_line_without_an_image_is_refused_but_in_a_local_run_on_some_objects(
    make_root: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("ml")
    with (own(root, "train_lst") / "train.lst").open("a") as lst:
        lst.write("9999\t3\tlost.png\n")
    expected = "channel 'train' has 90 images, and its list 'train_lst' 91 lines; correct the list or the images"
    assert expected in refusal()
    monkeypatch.setenv(contract.SAMPLE_VARIABLE, "100")
    run("--epochs", "1")


def test_unknown_channel_and_model_names_are_refused(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    assert "no channel 'images'" in refusal("--compare-channel", "images")
    assert "No module named 'nothing'" in refusal("--model", "nothing:make")
    assert "write package.module:function" in refusal("--model", "users_model")
    config = root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE
    config.write_text(config.read_text().replace('"train_lst"', '"train_list"'))
    assert "no channel 'train_lst'" in refusal()


def test_validation_class_missing_from_training_is_refused(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    (own(root, "validation_lst") / "validation.lst").write_text("1\t12\tx.png\n")
    assert "'validation_lst' has class 12, but 'train_lst' has none above 9" in refusal()


def test_checkpoint_of_another_model_is_refused(make_root: Callable[..., Path]) -> None:
    make_root("ml")
    run("--epochs", "1")
    assert " is a checkpoint of another training (" in refusal("--model", "users_model:make")


def test_hosts_without_torchrun_are_refused(make_root: Callable[..., Path]) -> None:
    root = make_root("ml")
    hosts = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}
    (root / contract.CONFIG_DIR / contract.RESOURCE_CONFIG_FILE).write_text(json.dumps(hosts))
    assert "2 hosts, and each would train its own model; write command: torchrun entrypoints/train.py" in refusal()
