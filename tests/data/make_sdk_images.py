"""Makes sdk_images.json: the URIs that the SageMaker Python SDK resolves, which tests/launcher/request/test_images.py expects.

Run by hand when a new SDK appears, in an environment that has sagemaker-core (SDK v3) and nothing of this project:

    python tests/data/make_sdk_images.py            a sample: some rows of every framework and algorithm, every region
    python tests/data/make_sdk_images.py all FILE   every combination of the grid below, to compare once

The grid is wider than what exists: versions, Pythons, regions and instance types that do not go together are asked as
well, and a row of theirs has null for a URI. Not asked is what `launcher.request.image_uris` answers differently on purpose (its
docstring says why): a version the SDK does not look at, other versions of PyTorch and Hugging Face on Trainium, short
names of Hugging Face's versions, and a Python that is not needed or that must be chosen.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    from sagemaker.core import image_uris
    from sagemaker.core.image_uris import utils

    PACKAGE = "sagemaker-core"
except ImportError:
    from sagemaker import image_uris, utils  # SDK v2, to compare by hand

    PACKAGE = "sagemaker"

OUTPUT = Path(__file__).with_name("sdk_images.json")
TABLES = Path(image_uris.__file__).with_name("image_uri_config")
SIZE = 280  # rows of the sample

TYPES = [
    None,
    "ml.m5.large",
    "ml.c7i-flex.large",
    "ml.g4dn.xlarge",
    "ml.g5.xlarge",
    "ml.p2.xlarge",
    "ml.p4d.24xlarge",
    "ml.p4de.24xlarge",
    "ml.p5.48xlarge",
    "ml.p6-b200.48xlarge",
    "ml.trn1.2xlarge",
]
NO_REGION, NO_VERSION, NO_PYTHON = "us-east-9", "99.9", "py99"
NEITHER = ("pytorch-neuron", "huggingface-neuronx", "hyperpod-recipes-neuron")

Row = list[Any]  # wanted, region, instance type, URI or None


def training_tables() -> dict[str, dict[str, Any]]:
    """The SDK's tables that are for training, by framework."""
    tables = {}
    for file in sorted(TABLES.glob("*.json")):
        content = json.loads(file.read_text())
        table = content if "training" in content.get("scope", ()) else content.get("training")
        if table and file.stem not in NEITHER:
            tables[file.stem] = table
    return tables


def all_values(tree: Any, key: str) -> Iterator[Any]:
    """Every value of `key` at any depth."""
    if isinstance(tree, dict):
        for name, item in tree.items():
            if name == key:
                yield item
            yield from all_values(item, key)


def ask(wanted: dict[str, str], region: str, instance_type: str | None) -> str | None:
    """Return the URI that the SDK's estimators get, or None if it refuses."""
    name, version, python = wanted["framework"], wanted.get("version"), wanted.get("py_version")
    if name == "sagemaker-base-python":
        call: Callable[[], str] = lambda: image_uris.get_base_python_image_uri(region, str(python)[2:])  # noqa: E731
    else:
        options: dict[str, Any] = {}
        base = wanted.get("base_framework_version")
        if base:
            family = "pytorch" if base.startswith("pytorch") else "tensorflow"
            options[f"{family}_version"] = base.removeprefix(family)
        if name.endswith("-training-compiler"):
            name, options["compiler_config"] = name.removesuffix("-training-compiler"), object()
        if name == "pytorch-smp":
            options["distribution"] = {"torch_distributed": {}, "smdistributed": {"modelparallel": {}}}
        call = lambda: image_uris.get_training_image_uri(  # noqa: E731
            region, name, framework_version=version, py_version=python, instance_type=instance_type, **options
        )
    try:
        return call()
    except ValueError:
        return None


def versions_of(name: str, table: dict[str, Any]) -> Iterator[dict[str, str]]:
    """What to want of a framework, but for its Python."""
    exact, short = list(table["versions"]), list(table.get("version_aliases", ()))
    if name == "pytorch-smp":  # asked by PyTorch's version; the others are the library's own
        exact, short = ["2.0.1", "2.1.2", "2.2.0", "2.3.1", "2.4.1", "2.5.1"], []
    if name.startswith("huggingface"):
        for version in exact:
            for base in table["versions"][version]:
                if base != "version_aliases":
                    yield {"framework": name, "version": version, "base_framework_version": base}
        return
    for version in exact + short + ([NO_VERSION] if len(table["versions"]) > 1 else []):
        yield {"framework": name, "version": version}


def pythons_of(wanted: dict[str, str], pythons: list[str], region: str, instance_type: str | None) -> Iterator[Row]:
    """A row for each Python, but for those where the SDK leaves a choice open or does not look."""
    plain = ask(wanted, region, instance_type)
    each = {python: ask({**wanted, "py_version": python}, region, instance_type) for python in (*pythons, NO_PYTHON)}
    if each[NO_PYTHON] is not None:
        each = {}
    if plain is not None or not any(each.values()):
        yield [wanted, region, instance_type, plain]
    for python, uri in each.items():
        yield [{**wanted, "py_version": python}, region, instance_type, uri]


def grid() -> Iterator[Row]:
    """Every region on two instance types, and every instance type in three regions."""
    tables = training_tables()
    regions = sorted(
        {region for table in tables.values() for found in all_values(table, "registries") for region in found}
    )
    places: set[tuple[str, str | None]]
    places = {(region, kind) for region in (*regions, NO_REGION) for kind in ("ml.m5.large", "ml.g5.xlarge")}
    places |= {(region, kind) for region in ("us-east-1", "cn-north-1", "us-gov-west-1") for kind in TYPES}
    for name, table in tables.items():
        pythons = {python for found in all_values(table, "py_versions") for python in found}
        pythons |= {"py2", "py3"} if name in ("mxnet", "tensorflow") else set()  # keys in 1.4.1 and 1.13.1
        for wanted in versions_of(name, table):
            for region, kind in sorted(places, key=str):
                if kind is None and name in ("huggingface", "huggingface-training-compiler", "pytorch-smp"):
                    continue
                if kind == "ml.trn1.2xlarge" and (
                    name.startswith("huggingface")
                    or name == "pytorch-training-compiler"
                    or (name == "pytorch" and wanted["version"] not in ("1.11", "1.11.0"))
                ):
                    continue
                yield from pythons_of(wanted, sorted(pythons), region, kind)
    for region in regions:
        for python in ("py38", "py310"):
            wanted = {"framework": "sagemaker-base-python", "version": "1.0", "py_version": python}
            yield [wanted, region, "ml.m5.large", ask(wanted, region, None)]


def sample(rows: list[Row]) -> list[Row]:
    """Four rows with an image and one without of each framework, some of each region and instance type, SIZE in all."""
    random.Random(1).shuffle(rows)
    chosen: list[Row] = []
    with_image, without = [row for row in rows if row[3]], [row for row in rows if not row[3]]
    for name in dict.fromkeys(row[0]["framework"] for row in sorted(rows, key=str)):
        chosen += [row for row in with_image if row[0]["framework"] == name][:4]
        chosen += [row for row in without if row[0]["framework"] == name][:1]
    for column, values, count in ((1, sorted({row[1] for row in with_image}), 1), (2, TYPES, 5)):
        for value in values:
            chosen += [row for row in with_image if row[column] == value and row not in chosen][:count]
    chosen += [row for row in with_image[:SIZE] if row not in chosen][: max(0, SIZE - len(chosen))]
    return sorted(chosen, key=str)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    # The SDK reads its tables and botocore's endpoints again for each image, which takes minutes for a grid.
    image_uris.config_for_framework = functools.cache(image_uris.config_for_framework)
    utils._botocore_resolver = functools.cache(utils._botocore_resolver)
    rows = list(grid())
    made_by = f"make_sdk_images.py, {PACKAGE} {importlib.metadata.version(PACKAGE)}; null where the SDK refuses"
    if sys.argv[1:2] == ["all"]:
        output = Path(sys.argv[2])
    else:
        output, rows = OUTPUT, sample(rows)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    output.write_text(f'{{\n "made_by": {json.dumps(made_by)},\n "images": [\n{lines}\n ]\n}}\n')
