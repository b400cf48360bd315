"""The demo data that the bundled specs read: `python -m launcher.demo DIR`, then `launch SPEC --local --data DIR`.

1,797 real handwritten digits, 8 x 8 grey pixels each (the NIST-derived set that scikit-learn ships: no download), split
into train, validation and test, and stored in the folders that a local run reads as S3 and as file systems:

    DIR/s3/my-bucket/digits/train/00042.png ...       one PNG per image; validation/ and test/ likewise
    DIR/s3/my-bucket/digits/train-tar/                the same training images in tar shards,
                            train-recordio/           in RecordIO shards,
                            train.manifest            named by a manifest
                            train.augmented-manifest  and, with their classes, by an augmented manifest
                            train-lines/              their pixels as gzipped JSON lines,
                            train-csv/                and as CSV
    DIR/s3/my-bucket/digits/lists/test/               test.lst: index, label, path
    DIR/efs/fs-0123456789abcdef0/digits/              train/ again, lists/train/train.lst, lists/validation/validation.lst;
                                                      and likewise for each file system that a bundled spec reads
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import click

from launcher import bundled
from launcher.console import say
from launcher.errors import LaunchError, RefusedError
from launcher.parsing.parser import load
from launcher.request.view import file_system_source
from sagemaker_channels.formats import recordio, tar
from sagemaker_channels.sample import KEY
from sagemaker_channels.samples.lst import Line, write_lst

BUCKET = "my-bucket"
SPLIT = (1297, 250, 250)  # images of train, validation, test
SHARD = 200  # images in a tar or RecordIO shard, lines in a file; real shards have 100 MB or more
_NOTE = "README.txt"  # written last: if it exists, the data is complete


class _Digit(NamedTuple):
    number: int  # in scikit-learn's set
    name: str  # of its file: 00042.png
    label: int  # 0 to 9
    pixels: list[int]  # 64, row by row, 0 (paper) to 16 (ink)
    png: bytes  # 8 x 8 grey pixels


def make_demo(directory: Path, split: tuple[int, int, int] = SPLIT) -> bool:
    """Make the data in `directory`; return False if it exists already. The same `split` makes the same images.

    Raises RefusedError if the directory contains other files, or scikit-learn or Pillow is not installed.
    """
    note = f"Made by python -m launcher.demo, images of train, validation, test: {split}. May be deleted.\n"
    if directory.exists() and any(directory.iterdir()):
        if (directory / _NOTE).is_file() and (directory / _NOTE).read_text(encoding="utf-8") == note:
            return False
        raise RefusedError(f"{directory} contains files other than this demo data; use another folder, or delete it")
    rest = iter(_digits())
    train, validation, test = ([next(rest) for _ in range(count)] for count in split)
    unfinished = directory.with_name(f".{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    root = unfinished / "s3" / BUCKET / "digits"
    for name, digits in {"train": train, "validation": validation, "test": test}.items():
        _write_images(root / name, digits)
    _write_list(root, "test", test)
    _write_other_forms(root, train)
    for folder in _file_system_folders():
        _write_images(unfinished / folder / "train", train)
        _write_list(unfinished / folder, "train", train)
        _write_list(unfinished / folder, "validation", validation)
    (unfinished / _NOTE).write_text(note, encoding="utf-8")
    if directory.exists():
        directory.rmdir()
    unfinished.rename(directory)
    return True


def _digits() -> list[_Digit]:
    """Return all images in a random but fixed order: the set itself is sorted by writer."""
    try:
        from PIL import Image
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        remedy = "pip install scikit-learn pillow"
        raise RefusedError(f"{error.name} is not installed, and the demo data needs it: {remedy}") from error
    digits = []
    for index, (row, label) in enumerate(zip(*load_digits(return_X_y=True), strict=True)):
        pixels, file = list(map(int, row)), BytesIO()
        Image.frombytes("L", (8, 8), bytes(round(pixel * 255 / 16) for pixel in pixels)).save(file, "PNG")
        digits.append(_Digit(index, f"{index:05d}.png", int(label), pixels, file.getvalue()))
    random.Random(0).shuffle(digits)
    return digits


def _file_system_folders() -> set[str]:
    """Return the path of each folder `digits` of a file system that a bundled spec reads, in the data folder."""
    found = set()
    for name in bundled.spec_names():
        for channel in load(str(bundled.spec_path(name))).all_channels.values():
            if source := file_system_source(channel.input_data_config("", None) or {}):
                path = source["DirectoryPath"].partition("digits")[0]
                found.add(f"{channel.data_folder()}/{source['FileSystemId']}{path}digits")
    return found


def _write_images(folder: Path, digits: Sequence[_Digit]) -> None:
    folder.mkdir(parents=True)
    for digit in digits:
        (folder / digit.name).write_bytes(digit.png)


def _write_list(root: Path, name: str, digits: Sequence[_Digit]) -> None:
    (root / "lists" / name).mkdir(parents=True)
    lines = (Line(digit.number, (float(digit.label),), digit.name) for digit in digits)
    write_lst(root / "lists" / name / f"{name}.lst", lines)


def _write_other_forms(root: Path, train: Sequence[_Digit]) -> None:
    for kind in ("tar", "recordio", "lines", "csv"):
        (root / f"train-{kind}").mkdir()
    for number, start in enumerate(range(0, len(train), SHARD)):
        shard, name = train[start : start + SHARD], f"train-{number:03d}"
        with (root / "train-tar" / f"{name}.tar").open("wb") as file:
            tar.write(file, ({KEY: Path(digit.name).stem, "png": digit.png} for digit in shard))
        with (root / "train-recordio" / f"{name}.rec").open("wb") as file:
            recordio.write(file, (digit.png for digit in shard))
        lines = "".join(json.dumps({"index": d.number, "class": d.label, "pixels": d.pixels}) + "\n" for d in shard)
        (root / "train-lines" / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
        rows = "".join(",".join(map(str, (d.label, *d.pixels))) + "\n" for d in shard)
        (root / "train-csv" / f"{name}.csv").write_text(rows, encoding="utf-8", newline="\n")
    prefix = f"s3://{BUCKET}/digits/train/"
    manifest = json.dumps([{"prefix": prefix}, *(digit.name for digit in train)], indent=0)
    (root / "train.manifest").write_text(f"{manifest}\n", encoding="utf-8")
    augmented = [json.dumps({"source-ref": f"{prefix}{digit.name}", "class": digit.label}) for digit in train]
    (root / "train.augmented-manifest").write_text("\n".join(augmented) + "\n", encoding="utf-8")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.pass_context
def main(context: click.Context, directory: Path) -> None:
    """Make the demo data in DIRECTORY."""
    try:
        made = make_demo(directory)
    except LaunchError as error:
        say(str(error))
        context.exit(error.exit_code)
    say(f"{directory}: {sum(SPLIT):,} handwritten digits, {'made' if made else 'made earlier'}; read them with")
    say(f"  launch --example image-classification > job.yaml && launch job.yaml --local --data {directory}")


if __name__ == "__main__":
    main()
