"""A host that reshards 100 objects, and what it has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.formats import format_of
from sagemaker_channels.sample import Sample

COUNT = 100
OUTPUT = "s3://bucket/out"


def set_up(root: Path, numbers: range) -> None:
    """Write the files of a host that has these objects."""
    data = root / contract.DATA_DIR / "data"
    data.mkdir(parents=True)
    for number in numbers:
        (data / f"{number:04d}.jpg").write_bytes(content(number))
    (root / contract.CONFIG_DIR).mkdir(parents=True)
    channels(root, "data")


def content(number: int) -> bytes:
    return b"%04d" % number * 100


def channels(root: Path, *names: str, **settings: str) -> None:
    found = {name: {"TrainingInputMode": "File", **settings} for name in names}
    (root / contract.CONFIG_DIR / "inputdataconfig.json").write_text(json.dumps(found))


def options(format: str = "tar", *more: str, size: int = 20_000) -> list[str]:
    return ["--output", OUTPUT, "--format", format, "--shard-bytes", str(size), *more]


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "shards").iterdir())}


def index(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "index.json").read_text())
    return found


def samples(out: Path, format: str) -> list[Sample]:
    found = list[Sample]()
    for file in sorted((out / "shards").iterdir()):
        with file.open("rb", buffering=0) as stream:
            found += format_of(format).split(stream)
    return found
