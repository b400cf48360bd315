"""`launch lst make IMAGES`: a list from a folder or a prefix with a folder for each class."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from types import SimpleNamespace

import click

from launcher.commands import options
from launcher.commands.lists.options import CLASS_FILE, Tool, dry_run_option, tool_options
from launcher.console import counted
from launcher.errors import InputError
from launcher.lists import files, making
from launcher.lists.files import ENDINGS, Lines
from sagemaker_channels.samples.lst import Line

NAMES = ("train", "validation", "test")  # the names of up to three lists, as SageMaker's channels are named


def _ratios(value: str) -> tuple[float, ...]:
    """Return the shares of `0.8,0.1,0.1`."""
    with suppress(ValueError):
        ratios = tuple(map(float, value.split(",")))
        if len(ratios) in (2, 3) and all(0 < ratio < 1 for ratio in ratios) and abs(sum(ratios) - 1) <= 1e-6:
            return ratios
    raise click.BadParameter(f"expected two or three shares with the sum 1, such as 0.8,0.1,0.1, got {value!r}")


@options.command("make", "lst make images --split 0.8,0.1,0.1 --seed 7 --by class")
@click.argument("images", type=click.Path())
@options.group(
    "how",
    click.option(
        "-o",
        "--output",
        type=options.LocalPath(path_type=Path),
        metavar="PATH",
        help="The list, by default named as IMAGES; with --split, the folder of the lists.",
    ),
    click.option(
        "--classes",
        type=click.Path(),
        metavar="FILE",
        help="The names of the classes, one per line, class 0 first; by default the folders in their order.",
    ),
    click.option(
        "--split",
        type=_ratios,
        metavar="SHARES",
        help="Write train.lst, validation.lst and test.lst with these shares: 0.8,0.1,0.1.",
    ),
    click.option("--seed", type=int, metavar="N", help="Shuffle the lines by this number; with --split, 0 by default."),
    click.option(
        "--by",
        type=click.Choice(("class", "folder")),
        help="With --split: divide each class (the default), or keep the images of a folder in one list.",
    ),
    options.flag("--one-hot", help="Write a column of 0 or 1 for each class, for multi_label."),
    options.many(
        "--ending", "endings", metavar=".EXT", help=f"Images end so, instead of {', '.join(ENDINGS)}. Repeatable."
    ),
    dry_run_option,
)
@tool_options
def make(images: str, how: SimpleNamespace, tool: Tool) -> None:
    """Make a list of images and their classes.

    Make a list of the images below IMAGES, a folder or s3://bucket/prefix, whose first folders are the classes, numbered from 0
    in their order. The classes' names are written to classes.txt beside the list; other names that it has are not replaced. Row
    numbers are unique over all lists, and paths are relative to IMAGES, as im2rec and the built-in image classification expect
    them. Hidden files and files with other endings are counted and left out.
    """
    if how.by and not how.split:
        raise click.UsageError("--by works only with --split; add it, or leave --by out")
    endings = tuple(f".{each.lower().lstrip('.')}" for each in how.endings) or ENDINGS
    with tool.working(f"listing {images}"):
        paths, skipped = files.find_images(images, endings, tool.account)
    folders = making.class_names(paths, images)
    names = files.read_names(how.classes, tool.account) or folders
    written = _files(images, how)
    folder = written[0].parent
    beside = set(folder.glob("*.lst")).difference(written)
    unused = making.check_names(names, folders, str(how.classes), bool(beside))
    lists = dict(zip(written, _parts(how, making.make_lines(paths, names, one_hot=how.one_hot)), strict=True))
    for each, part in lists.items():
        if not part:
            units = "folders" if how.by == "folder" else "images"
            raise InputError(f"{each} would be empty: there are too few {units} for these shares")
        if each.exists() and not each.is_file():
            raise InputError(f"{each}: is not a file but a folder or a device; name the list by -o")
    notes = [f"{images}: {counted(len(paths), 'image')} in {counted(len(names), 'class')}"]
    notes += [f"left out: {files.described(skipped)}"] if skipped else []
    notes += [f"warning: no image of class {', '.join(unused)}"] if unused else []
    stale = sorted(str(file) for file in beside if how.split and file.stem in NAMES)
    why = "is of an earlier division, and may have images of the new lists"
    notes += [f"warning: {file} {why}" for file in stale]
    file = folder / CLASS_FILE
    if file.exists() and (others := files.read_names(str(file), tool.account)) != names:
        remedy = f"pass --classes {file} to keep their numbers, or -o to write to another folder, or delete the file"
        raise InputError(f"{file}: has other classes ({shorten(', '.join(others), 80)}); {remedy}")
    tool.replace(lists, {file: names}, notes, dry_run=how.dry_run)


def _files(images: str, how: SimpleNamespace) -> list[Path]:
    """Return the lists to write."""
    if how.split:
        return [(how.output or Path()) / f"{name}.lst" for name in NAMES[: len(how.split)]]
    place = images if files.is_s3(images) else str(Path(images).resolve())
    return [how.output or Path(f"{place.rstrip('/').rpartition('/')[2]}.lst")]


def _parts(how: SimpleNamespace, lines: list[Line]) -> list[Lines]:
    """Return the lines of each list."""
    if how.split:
        return list(map(making.by_path, making.divide(lines, how.split, how.seed or 0, how.by or "class")))
    if how.seed is not None:
        random.Random(how.seed).shuffle(lines)
    return [making.by_path(lines)]
