"""A job of one host with one channel, as SageMaker lays it out, for benchmarks that read from a local disk."""

from __future__ import annotations

import json
from pathlib import Path

from sagemaker_channels import contract
from sagemaker_channels.job.environment import Environment, load_environment


def mounted_job(root: Path, content_type: str | None, mode: str = "File") -> Environment:
    """Return the job below `root`, and create the folder of its channel `train`, `train_folder(root)`."""
    train_folder(root).mkdir(parents=True, exist_ok=True)
    entry = {"TrainingInputMode": mode, **({"ContentType": content_type} if content_type else {})}
    (root / contract.CONFIG_DIR).mkdir(parents=True, exist_ok=True)
    (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps({"train": entry}))
    return load_environment(root, {})


def train_folder(root: Path) -> Path:
    """Where the objects of the channel lie."""
    return root / contract.DATA_DIR / "train"
