"""`launch lst make IMAGES`: a list from a folder or a prefix with a folder for each class; `launch lst merge`."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from textwrap import shorten

import click

from launcher.commands.card import argument, flag, option, repeatable
from launcher.commands.lists.options import CLASS_FILE, LISTS, NEW_CLASSES, WritingCommand, class_file
from launcher.commands.options import LocalPath
from launcher.console import counted
from launcher.errors import InputError
from launcher.lists.classes import columns
from launcher.lists.files import Lines, is_s3, read_names
from launcher.lists.image_files import ENDINGS, described, find_images
from launcher.lists.making import LISTS as NAMES
from launcher.lists.making import by_path, check_names, class_names, divide, make_lines, merge
from sagemaker_channels.samples.lst import Line


def _ratios(value: str) -> tuple[float, ...]:
    """Return the shares of `0.8,0.1,0.1`."""
    with suppress(ValueError):
        ratios = tuple(map(float, value.split(",")))
        if len(ratios) in (2, 3) and all(0 < ratio < 1 for ratio in ratios) and abs(sum(ratios) - 1) <= 1e-6:
            return ratios
    raise click.BadParameter(f"expected two or three shares with the sum 1, such as 0.8,0.1,0.1, got {value!r}")


class Make(WritingCommand):
    """Make a list of images and their classes.

    Make a list of the images below IMAGES, a folder or s3://bucket/prefix, whose first folders are the classes, numbered from 0
    in their order. The classes' names are written to classes.txt beside the list; other names that it has are not replaced. Row
    numbers are unique over all lists, and paths are relative to IMAGES, as im2rec and the built-in image classification expect
    them. Hidden files and files with other endings are counted and left out.
    """

    example = "lst make images --split 0.8,0.1,0.1 --seed 7 --by class"

    images: str = argument(type=click.Path())
    output: Path | None = option(
        "-o",
        "--output",
        type=LocalPath(path_type=Path),
        metavar="PATH",
        help="The list, by default named as IMAGES; with --split, the folder of the lists.",
    )
    classes: str | None = NEW_CLASSES
    split: tuple[float, ...] | None = option(
        type=_ratios,
        metavar="SHARES",
        help="Write train.lst, validation.lst and test.lst with these shares: 0.8,0.1,0.1.",
    )
    seed: int | None = option(
        type=int, metavar="N", help="Shuffle the lines by this number; with --split, 0 by default."
    )
    by: str | None = option(
        type=click.Choice(("class", "folder")),
        help="With --split: divide each class (the default), or keep the images of a folder in one list.",
    )
    one_hot: bool = flag(help="Write a column of 0 or 1 for each class, for multi_label.")
    endings: tuple[str, ...] = repeatable(
        "--ending", metavar=".EXT", help=f"Images end so, instead of {', '.join(ENDINGS)}. Repeatable."
    )

    def run(self) -> int:
        """Find the images, number their classes, divide them, and write the lists."""
        if self.by and not self.split:
            raise click.UsageError("--by works only with --split; add it, or leave --by out")
        endings = tuple(f".{each.lower().lstrip('.')}" for each in self.endings) or ENDINGS
        with self.working(f"listing {self.images}"):
            found = find_images(self.images, endings, self.account)
        folders = class_names(found.paths, self.images)
        names = read_names(self.classes, self.account) or folders
        files = self._files()
        folder = files[0].parent
        has_others = any(file not in files for file in folder.glob("*.lst"))
        unused = check_names(names, folders, str(self.classes), has_others)
        with self.working("dividing the images"):
            lists = dict(zip(files, self._parts(make_lines(found.paths, names, one_hot=self.one_hot)), strict=True))
        if empty := [str(file) for file, part in lists.items() if not part]:
            units = "folders" if self.by == "folder" else "images"
            raise InputError(f"{', '.join(empty)} would be empty: there are too few {units} for these shares")
        notes = [f"{self.images}: {counted(len(found.paths), 'image')} in {counted(len(names), 'class')}"]
        notes += [f"left out: {described(found.skipped)}"] if found.skipped else []
        notes += [f"warning: no image of class {', '.join(unused)}"] if unused else []
        stale = [folder / f"{name}.lst" for name in NAMES if self.split and folder / f"{name}.lst" not in lists]
        why = "is of an earlier division, and may have images of the new lists"
        notes += [f"warning: {file} {why}" for file in stale if file.exists()]
        file = folder / CLASS_FILE
        if file.exists() and (others := read_names(str(file), self.account)) != names:
            remedy = (
                f"pass --classes {file} to keep their numbers, or -o to write to another folder, or delete the file"
            )
            raise InputError(f"{file}: has other classes ({shorten(', '.join(others), 80)}); {remedy}")
        return self.write(lists, {file: names}, notes)

    def _files(self) -> list[Path]:
        """Return the lists to write."""
        if self.split:
            return [(self.output or Path()) / f"{name}.lst" for name in NAMES[: len(self.split)]]
        place = self.images if is_s3(self.images) else str(Path(self.images).resolve())
        return [self.output or Path(f"{place.rstrip('/').rpartition('/')[2]}.lst")]

    def _parts(self, lines: list[Line]) -> list[Lines]:
        """Return the lines of each list."""
        if self.split:
            return list(map(by_path, divide(lines, self.split, self.seed or 0, self.by or "class")))
        if self.seed is not None:
            random.Random(self.seed).shuffle(lines)
        return [by_path(lines)]


class Merge(WritingCommand):
    """Merge lists into one.

    Merge LISTs whose classes have the same numbers; classes.txt beside each, if it exists, must have the same names. A path that
    several lists contain is written once; different labels are refused, unless you pass --keep. Lines keep their row numbers;
    one that an earlier list uses is replaced by a free one.
    """

    example = "lst merge train.lst more.lst -o all.lst"

    lists: tuple[str, ...] = LISTS
    output: Path = option(
        "-o",
        "--output",
        type=LocalPath(dir_okay=False, path_type=Path),
        metavar="FILE",
        required=True,
        help="The merged list.",
    )
    keep: str | None = option(type=click.Choice(("first", "last")), help="Whose labels a path gets if lists differ.")

    def run(self) -> int:
        """Merge the lists, and report how many lines of each were in another."""
        files = [file for place in (*self.lists, str(self.output)) if (file := class_file(None, [place]))]
        for file in files[1:]:
            if read_names(file, self.account) != read_names(files[0], self.account):
                remedy = "make lists that you merge with the same --classes"
                raise InputError(f"{file}: has other classes than {files[0]}; {remedy}")
        lists = self.read(self.lists)
        with self.working("merging the lists"):
            widths = {name: columns([lines]) for name, lines in lists.items() if lines}
            if len({*widths.values()}) > 1:
                found = ", ".join(f"{width or 'no'} in {name}" for name, width in widths.items())
                raise InputError(f"the numbers of one-hot columns differ: {found}; make all lists in one form")
            merged, left_out = merge(list(lists.items()), self.keep)
        why = "left out, since another list has their paths"
        notes = [f"{name}: {counted(count, 'line')} {why}" for name, count in left_out.items()]
        return self.write({self.output: merged}, {}, notes)
