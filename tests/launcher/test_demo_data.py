"""The demo's data: real digits, the same ones in every form, where the bundled specs look for them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from launcher import demo
from launcher.errors import RefusedError
from local_jobs import EFS, FSX
from sagemaker_channels.formats import recordio, tar
from sagemaker_channels.samples.lst import read_lst

SPLIT = (450, 40, 30)  # three shards, the last one short


def load_digits() -> Any:
    """Return scikit-learn's digits; its import takes seconds, in each worker that only collects this file."""
    from sklearn.datasets import load_digits

    return load_digits()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo") / "data"
    assert demo.make_demo(directory, SPLIT)
    return directory


def digits(data: Path) -> Path:
    return data / "s3" / demo.BUCKET / "digits"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_splits_are_disjoint(data: Path) -> None:
    keys = [set(contents(digits(data) / name)) for name in ("train", "validation", "test")]
    assert [len(each) for each in keys] == list(SPLIT)
    assert len(set.union(*keys)) == sum(SPLIT)


def test_images_equal_scikit_learns(data: Path) -> None:
    images = load_digits().images
    for name, content in contents(digits(data) / "validation").items():
        pixels = np.asarray(Image.open(BytesIO(content)), dtype=float)
        assert np.array_equal(np.round(pixels * 16 / 255), images[int(name.removesuffix(".png"))])


def test_every_format_contains_the_same_training_images(data: Path) -> None:
    files = contents(digits(data) / "train")
    assert contents(data / "efs" / EFS / "digits/train") == files
    assert contents(data / "fsx" / FSX / "abcdefgh/digits/train") == files
    shards = sorted((digits(data) / "train-tar").iterdir())
    assert len(shards) == 3
    samples = [sample for shard in shards for sample in tar.FORMAT.split(BytesIO(shard.read_bytes()), shard.name)]
    assert {f"{sample['__key__']}.png": sample["png"] for sample in samples} == files
    records = sorted((digits(data) / "train-recordio").iterdir())
    payloads = [each for file in records for each in recordio.payloads(BytesIO(file.read_bytes()), file.name)]
    assert sorted(payloads) == sorted(files.values())
    prefix, *keys = json.loads((digits(data) / "train.manifest").read_text())
    assert prefix == {"prefix": f"s3://{demo.BUCKET}/digits/train/"} and set(keys) == set(files)


def test_every_format_has_the_same_labels(data: Path) -> None:
    lines = read_lst(data / "efs" / EFS / "digits/lists/train/train.lst")
    assert set(lines) == set(contents(digits(data) / "train"))
    labels = load_digits().target
    assert {path: line.labels[0] for path, line in lines.items()} == {
        f"{index:05d}.png": labels[index] for index in [line.index for line in lines.values()]
    }
    augmented = (digits(data) / "train.augmented-manifest").read_text().splitlines()
    classes = {line["source-ref"].rpartition("/")[2]: line["class"] for line in map(json.loads, augmented)}
    assert classes == {path: line.labels[0] for path, line in lines.items()}
    for file, table in zip(
        sorted((digits(data) / "train-lines").iterdir()), sorted((digits(data) / "train-csv").iterdir()), strict=True
    ):
        rows = [list(map(int, row.split(","))) for row in table.read_text().splitlines()]
        written = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        assert rows == [[each["class"], *each["pixels"]] for each in written]
        assert all(lines[f"{each['index']:05d}.png"].labels[0] == each["class"] for each in written)


def test_other_lists_name_their_images(data: Path) -> None:
    assert set(read_lst(digits(data) / "lists/test/test.lst")) == set(contents(digits(data) / "test"))
    lists = data / "fsx" / FSX / "abcdefgh/digits/lists"
    assert set(read_lst(lists / "validation/validation.lst")) == set(contents(digits(data) / "validation"))


def test_same_split_makes_the_same_bytes(data: Path, tmp_path: Path) -> None:
    demo.make_demo(tmp_path / "again", SPLIT)
    assert contents(tmp_path / "again") == contents(data)


def test_existing_data_is_kept(data: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in data.rglob("*")}
    assert not demo.make_demo(data, SPLIT)
    assert {file: file.stat().st_mtime_ns for file in data.rglob("*")} == before


def test_folder_with_other_files_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedError, match="contains files other than"):
        demo.make_demo(tmp_path, SPLIT)
    assert contents(tmp_path) == {"thesis.txt": b"years of work"}
    with pytest.raises(RefusedError, match="contains files other than"):
        demo.make_demo(data, (10, 5, 5))


def test_leftovers_of_an_interruption_are_replaced(tmp_path: Path) -> None:
    unfinished = tmp_path / ".data.unfinished/s3/my-bucket/digits/train"
    unfinished.mkdir(parents=True)
    (unfinished / "00000.png").write_bytes(b"half")
    assert demo.make_demo(tmp_path / "data", (5, 5, 5))
    assert os.listdir(tmp_path) == ["data"]  # noqa: PTH208


def test_command_makes_the_data_and_prints_the_next_step(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "launcher.demo", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run().returncode == 2
    assert run("--help").stdout.startswith("Usage: ")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").touch()
    refused = run("taken")
    assert refused.returncode == RefusedError.exit_code and len(refused.stderr.splitlines()) == 1
