"""Write image_support.json: until when AWS patches each version of its images for training, and their Python.

Run by hand on a checkout of github.com/aws/deep-learning-containers, with the checkout's date:

    python tests/data/make_image_support.py <checkout>/docs/src 2026-11-26

AWS's page of available images and the support policy are made from the same files: data/<repository>/<version>-...yml for each
image with its end of patch (`eop`), and legacy/legacy_support.yml for versions that ended earlier. Repositories without such dates
(Hugging Face, AutoGluon, Neuron) are left out. The first table has 2.14 of PyTorch from a later commit (7b9affb299) than the
rest (e0ecedea6a of 2026-08-21).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

OUTPUT = Path(__file__).parents[2] / "launcher/data/image_support.json"
# `framework` of a spec -> the repositories of its images.
_REPOSITORIES = {
    "pytorch": ("pytorch-training", "pytorch"),
    "tensorflow": ("tensorflow-training",),
    "xgboost": ("sagemaker-xgboost",),
    "sklearn": ("sagemaker-scikit-learn",),
}


def make_image_support(folder: Path, date: str) -> dict[str, Any]:
    """Return the content of image_support.json, made from the folder docs/src of a checkout."""
    legacy = yaml.safe_load((folder / "legacy/legacy_support.yml").read_text())
    frameworks = {}
    for name, repositories in _REPOSITORIES.items():
        files = [file for each in repositories for file in (folder / "data" / each).glob("*-sagemaker.yml")]
        images = [yaml.safe_load(file.read_text()) for file in files]
        ends = {each["version"]: each["eop"] for each in (*legacy.get(name, ()), *images)}
        pythons = {each["version"]: f"3.{each['python'].removeprefix('py3')}" for each in images if "python" in each}
        # The support policy names every version whose patches ended in the last two years, so that those of older ones have ended.
        ends |= {"older": ends[min(ends, key=_numbers)]} if name in legacy else {}
        frameworks[name] = {"repositories": repositories, "end_of_patch": _in_order(ends), "python": _in_order(pythons)}
    return {
        "about": "Until when AWS patches its images for training, by version. Made by tests/data/make_image_support.py.",
        "source": "aws/deep-learning-containers, docs/src",
        "date": date,
        "frameworks": frameworks,
    }


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _in_order(versions: dict[str, str]) -> dict[str, str]:
    return dict(sorted(versions.items(), key=lambda item: _numbers(item[0])))


if __name__ == "__main__":
    OUTPUT.write_text(json.dumps(make_image_support(Path(sys.argv[1]), sys.argv[2]), indent=1) + "\n")
