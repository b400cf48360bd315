"""Runs of train.py on the demo's digits, and their results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import train
from local_jobs import EFS, FSX
from sagemaker_channels import contract

REPOSITORY = Path(__file__).parents[1]
SPLIT = (90, 30, 20)
CHANNELS = {  # channel -> its folder in the demo's data
    "train": "s3/my-bucket/digits/train",
    "validation": "s3/my-bucket/digits/validation",
    "test": "s3/my-bucket/digits/test",
    "train_lst": f"efs/{EFS}/digits/lists/train",
    "validation_lst": f"fsx/{FSX}/abcdefgh/digits/lists/validation",
    "test_lst": "s3/my-bucket/digits/lists/test",
}


def run(*arguments: str) -> None:
    train.main(["--image-mode", "L", "--batch-size", "16", "--learning-rate", "0.005", *arguments])


def refusal(*arguments: str) -> str:
    """The one line with which the script ends."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert isinstance(ended.value.code, str), ended.value.code
    assert "\n" not in ended.value.code and ended.value.code.startswith("train: ")
    return ended.value.code


def own(root: Path, channel: str) -> Path:
    """The channel's folder as a copy that a test may change."""
    folder = root / contract.DATA_DIR / channel
    original = folder.resolve()
    folder.unlink()
    shutil.copytree(original, folder)
    return folder


def result(root: Path) -> tuple[dict[str, torch.Tensor], Any]:
    """The model's weights, and the metrics without what depends on the clock."""
    metrics = json.loads((root / contract.OUTPUT_DATA_DIR / "metrics.json").read_text())
    metrics.pop("channels")
    return torch.load(root / contract.MODEL_DIR / "model.pt", weights_only=True), metrics


def assert_same(root: Path, other: Path) -> None:
    weights, metrics = result(root)
    other_weights, other_metrics = result(other)
    assert metrics == other_metrics
    assert weights.keys() == other_weights.keys()
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
