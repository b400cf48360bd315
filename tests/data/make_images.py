"""Write images.json: the training images of the SageMaker Python SDK's tables, with one repository:tag per choice.

Run by hand when a new SDK appears, on the tables of its wheel (`pip download --no-deps sagemaker-core`, unzipped):

    python tests/data/make_images.py <wheel>/sagemaker/core/image_uri_config "sagemaker-core 2.27.0" 2026-10-21

The SDK composes a tag at each call, from a table and from rules in its code (sagemaker/core/image_uris.py). This script
applies those rules once, so that `launcher.request.image_uris` only looks images up. Each image was compared with the SDK's
result (tests/data/make_sdk_images.py). Tables without training images are left out, and so are two that the SDK itself
cannot resolve for training: huggingface-neuronx and hyperpod-recipes-neuron.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parents[2] / "launcher/data/images.json"

_Build = dict[str, Any]

_LEFT_OUT = ("huggingface-neuronx", "hyperpod-recipes-neuron")
# Further repositories of aws/deep-learning-containers (docs/src/data, of 2026-08-21).
_NOT_IN_SDK = (
    *("base", "huggingface-tei", "pytorch-inference-neuronx", "pytorch-training-arm64", "sglang-server"),
    *("tensorflow-inference-arm64", "tensorflow-inference-neuronx", "vllm-arm64", "vllm-omni", "vllm-server"),
)
# A table for a further processor of a framework, which the SDK chooses by the instance type.
_PART_OF = {"pytorch-neuron": "pytorch"}
# The suffix of Hugging Face's images from before their table had a container_version (get_training_image_uri).
_OLD_HUGGING_FACE = "cu110-ubuntu18.04"
# pytorch-smp is looked up by PyTorch's version; its suffix is in get_training_image_uri. The table also lists the
# library's own versions, which no image is named by.
_SMP = {
    "2.0.1": {"gpu": "cu118", "p5": "cu121", "p5e": "cu121", "p5en": "cu121"},
    "2.1.2": {"gpu": "cu121"},
    "2.2.0": {"gpu": "cu121"},
    "2.3.1": {"gpu": "cu121"},
    "2.4.1": {"gpu": "cu121"},
    "2.5.1": {"gpu": "cu124"},
}
# Images with a newer CUDA, used on p4d only (_get_image_tag).
_ON_P4D = {
    "tensorflow-training:2.3-gpu-py37": "cu110-ubuntu18.04-v3",
    "tensorflow-training:2.3.1-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-training:2.3.2-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-training:1.15-gpu-py37": "cu110-ubuntu18.04-v8",
    "tensorflow-training:1.15.4-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-training:1.15.5-gpu-py37": "cu110-ubuntu18.04",
    "mxnet-training:1.8-gpu-py37": "cu110-ubuntu16.04-v1",
    "mxnet-training:1.8.0-gpu-py37": "cu110-ubuntu16.04",
    "pytorch-training:1.6-gpu-py36": "cu110-ubuntu18.04-v3",
    "pytorch-training:1.6.0-gpu-py36": "cu110-ubuntu18.04",
    "pytorch-training:1.6-gpu-py3": "cu110-ubuntu18.04-v3",
    "pytorch-training:1.6.0-gpu-py3": "cu110-ubuntu18.04",
}


def make_images(folder: Path, source: str, date: str) -> dict[str, Any]:
    """Return the content of images.json, made from a folder of the SDK's tables; builds refer to `registries` by index."""
    images: dict[str, dict[str, list[_Build]]] = {}
    for file in sorted(folder.glob("*.json")):
        content = json.loads(file.read_text())
        table = content.get("training")
        if "training" in content.get("scope", ()):  # and inference uses the same images
            table = content
        if table and file.stem not in _LEFT_OUT:
            versions = images.setdefault(_PART_OF.get(file.stem, file.stem), {})
            for version, builds in _versions(file.stem, table):
                versions.setdefault(version, []).extend(builds)
    # From 2.11 on PyTorch has images on Amazon Linux 2023 only, which are a framework of their own in the SDK.
    for version, builds in images.get("pytorch-amzn2023", {}).items():
        if version != "latest":
            images["pytorch"][version] = deepcopy(builds)
    # The version of plain Python is in the repository's name (get_base_python_image_uri).
    plain = json.loads((folder / "sagemaker-base-python.json").read_text())["versions"]["1.0"]
    images["sagemaker-base-python"] = {
        "1.0": [
            {
                "registries": plain["registries"],
                "images": {"any": f"{plain['repository']}-{python}:1.0"},
                "py_version": f"py{python}",
            }
            for python in ("38", "310")
        ]
    }
    named = set(_NOT_IN_SDK) | {
        repository for file in folder.glob("*.json") for repository in _repositories(json.loads(file.read_text()))
    }
    every = [build for versions in images.values() for each in versions.values() for build in each]
    named |= {image.partition(":")[0] for build in every for image in build["images"].values()}
    registries: list[dict[str, str]] = []
    for build in every:
        if build["registries"] not in registries:
            registries.append(build["registries"])
        build["registries"] = registries.index(build["registries"])
    return {
        "about": "Training images by framework or algorithm, version and processor. Made by tests/data/make_images.py.",
        "source": source,
        "date": date,
        # A built-in algorithm has one image for all processors, and no choice of Python.
        "algorithms": [
            name
            for name, versions in images.items()
            if any("any" in build["images"] and "py_version" not in build for build in versions.get("1", []))
        ],
        "repositories": sorted(named),
        "images": images,
        "registries": registries,
    }


def _repositories(table: Any) -> Iterator[str]:
    """Yield the repositories that a table names, for training or anything else."""
    if isinstance(table, dict):
        if isinstance(table.get("repository"), str):
            yield table["repository"]
        for entry in table.values():
            yield from _repositories(entry)


def _versions(name: str, table: dict[str, Any]) -> Iterator[tuple[str, list[_Build]]]:
    """Yield each version as a user may write it, such as `2.5.1` and its alias `2.5`, with its builds."""
    exact = {version: version for version in table["versions"]}
    for written, version in {**exact, **table.get("version_aliases", {})}.items():
        if name == "pytorch-smp" and written not in _SMP:
            continue
        builds: list[_Build] = []
        for base, python, leaf in _leaves(table["versions"][version]):
            # Hugging Face's repositories are only sure to have the tag of the full version.
            prefix = f"{re.sub('^[a-z]+', '', base)}-transformers{version}" if base else leaf.get("tag_prefix", written)
            leaf = leaf | {"processors": table.get("processors") or leaf.get("processors") or [None]}
            if name == "pytorch-smp":
                leaf |= {"container_version": _SMP[written], "processors": list(_SMP[written])}
            elif name == "huggingface":
                leaf.setdefault("container_version", {"gpu": _OLD_HUGGING_FACE})
            builds += _builds(prefix, base, [python] if python else leaf.get("py_versions") or [None], leaf)
        yield written, builds


def _leaves(version: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each entry of a version with its base framework's version and its Python's version, "" if it has none."""
    if "repository" in version:
        yield "", "", version
        return
    for key, entry in version.items():
        if key != "version_aliases":
            yield ("", key, entry) if key.startswith("py") and key[2:].isdigit() else (key, "", entry)


def _builds(prefix: str, base: str, pythons: list[str | None], leaf: dict[str, Any]) -> Iterator[_Build]:
    for python in pythons:
        images = {}
        for processor in leaf["processors"]:
            suffix = leaf.get("container_version", {}).get(processor)
            token = "gpu" if processor in ("p5", "p5e", "p5en") else processor
            if leaf["repository"] == "pytorch-training-neuron":
                token, suffix = "neuron", f"{max(leaf['sdk_versions'])}-{suffix}"
            if not leaf.get("processor_in_tag", True):
                token = None
            image = f"{leaf['repository']}:{'-'.join(filter(None, (prefix, token, python, suffix)))}"
            images[processor or "any"] = image
            if image in _ON_P4D:
                images["p4d"] = f"{image}-{_ON_P4D[image]}"
        build = {"registries": leaf["registries"], "images": images}
        build |= {"py_version": python} if python else {}
        yield build | ({"base_framework_version": base} if base else {})


def to_text(content: dict[str, Any]) -> str:
    """Return JSON with one build and one registries table per line, so that a change in the SDK changes one line."""
    lines = []
    for name, versions in content["images"].items():
        rows = [
            f"   {json.dumps(key)}: [" + ",\n    ".join(map(json.dumps, row)) + "]" for key, row in versions.items()
        ]
        lines.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(rows) + "}")
    registries = ",\n".join("  " + json.dumps(registry) for registry in content["registries"])
    text = json.dumps(content | {"images": {}, "registries": []}, indent=1)
    text = text.replace('"images": {}', '"images": {\n' + ",\n".join(lines) + "}")
    return text.replace('"registries": []', '"registries": [\n' + registries + "]") + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(to_text(make_images(Path(sys.argv[1]), sys.argv[2], sys.argv[3])))
