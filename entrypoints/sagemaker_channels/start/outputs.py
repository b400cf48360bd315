"""Models and checkpoints that a script has written where SageMaker does not keep them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from sagemaker_channels import contract
from sagemaker_channels.job.environment import Environment

_MODELS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".onnx", ".pkl", ".joblib", ".h5", ".keras", ".npz")
_MOST = 100_000  # files that are looked at: a script may have unpacked a data set


def lost_model(environment: Environment, since: float) -> str | None:
    """Return a warning if the model folder is empty and the script has written a model elsewhere below /opt/ml.

    Files older than `since`, the time at which the script began, are the code's or the image's.
    """
    if _count(environment.model_dir):
        return None
    kept = (environment.input_dir, environment.output_data_dir, environment.checkpoint_dir)
    ours = (environment.root / name for name in (contract.BUNDLE_DIR, contract.PACKAGES_DIR))
    sizes: dict[Path, int] = {}
    for file in islice(_files(environment, {*kept, *ours}), _MOST):
        if file.suffix.lower() in _MODELS:
            with suppress(OSError):  # a link to nothing, or another process has just removed it
                state = file.stat()
                if state.st_mtime >= since:
                    sizes[file] = state.st_size
    if not sizes:
        return None
    largest = max(sizes, key=lambda file: sizes[file])
    more = f" and {len(sizes) - 1} more" * (len(sizes) > 1)
    return (
        f"{environment.model_dir} is empty, so this host has no model, and what the script has written elsewhere is lost: "
        f"{largest} ({sizes[largest]:,} bytes){more}; save the model below os.environ['SM_MODEL_DIR']"
    )


def lost_checkpoints(environment: Environment) -> str | None:
    """Return a warning if there are files in a checkpoint folder that the script has made, since SageMaker made none."""
    if not (count := _count(environment.checkpoint_dir)):
        return None
    return (
        f"{environment.checkpoint_dir} did not exist before the script, so this job seems to have no checkpoint_config, and"
        f" {count:,} file(s) there are lost; add checkpoint_config: {{s3_uri: s3://bucket/prefix}} to the spec"
    )


def _count(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _files(environment: Environment, left_out: set[Path]) -> Iterator[Path]:
    """Yield the files below /opt/ml, without these folders and other mounts, such as a LocalPath of checkpoints."""
    for parent, names, files in os.walk(environment.root):
        folders = [Path(parent, name) for name in names]
        names[:] = [
            path.name
            for path in folders
            if path not in left_out and (path == environment.code_dir or not path.is_mount())
        ]
        yield from (Path(parent, name) for name in files)
