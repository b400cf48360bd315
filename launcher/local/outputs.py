"""The outputs of a job, stored below the run's own `s3` folder as SageMaker stores them in S3."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from entrypoints import contract


def local_place(uri: str, s3_folder: Path) -> Path:
    """Return the path of `s3://bucket/prefix/` below the run's folder that stands for S3."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    parts = [part for part in key.split("/") if part not in ("", ".", "..")]
    return s3_folder.joinpath(bucket, *parts)


def local_bucket(uri: str, s3_folder: Path) -> Path:
    """Return the folder of a URI's bucket, which must exist before anything can be stored in the bucket."""
    return s3_folder / uri.partition("://")[2].partition("/")[0]


def collect_outputs(
    request: Mapping[str, Any], roots: Sequence[Path], s3_folder: Path, *, failed: bool
) -> dict[str, str]:
    """Write model and output artifacts of all hosts; return those written, name -> path.

    A failed job has no model; its output data is kept, as it may show the reason.
    """
    config = request["OutputDataConfig"]
    place = local_place(config["S3OutputPath"], s3_folder) / request["TrainingJobName"] / "output"
    archived = config.get("CompressionType") != "NONE"
    artifacts = {}
    for name, folder, wanted in (
        ("model", contract.MODEL_DIR, not failed),
        ("output", contract.OUTPUT_DATA_DIR, True),
    ):
        folders = [root / folder for root in roots if (root / folder).is_dir() and any((root / folder).iterdir())]
        if not wanted or not folders:
            continue
        target = place / f"{name}.tar.gz" if archived else place / ("model" if name == "model" else "data")
        target.parent.mkdir(parents=True, exist_ok=True)
        if archived:
            _archive(folders, target)
        else:
            for each in folders:
                shutil.copytree(each, target, dirs_exist_ok=True, symlinks=True)
        artifacts[name] = str(target)
    return artifacts


def _archive(folders: Sequence[Path], target: Path) -> None:
    """One archive of what all hosts wrote; of files with the same name, the last host's stays, as in SageMaker."""
    members = {file.relative_to(folder): file for folder in folders for file in sorted(folder.rglob("*"))}
    partial = target.with_name(f".{target.name}.partial")
    with tarfile.open(partial, "w:gz", compresslevel=3) as tar:
        for name, file in members.items():
            tar.add(file, arcname=name.as_posix(), recursive=False)
    partial.rename(target)


def failure_reason(roots: Sequence[Path], exit_codes: Sequence[int]) -> str:
    """What became FailureReason: the first failed host's `failure` file, else its exit code."""
    reasons = []
    for root, code in zip(roots, exit_codes, strict=True):
        file = root / contract.FAILURE_FILE
        text = file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else ""
        if code:
            shown = f"signal {-code}" if code < 0 else f"exit code {code}"
            reasons.append(
                text[: contract.FAILURE_LIMIT] or f"the entrypoint ended with {shown} and wrote no failure file"
            )
    return reasons[0] if reasons else ""
