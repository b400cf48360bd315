"""`launch lst make`, a list from a folder for each class, and `edit`: other classes in all lists, or lists joined into one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from types import SimpleNamespace

import click

from launcher.commands import options
from launcher.commands.lists.look import (
    CLASS_FILE,
    Tool,
    class_file,
    classes_option,
    in_words,
    lists_argument,
    show_classes,
    tool_options,
)
from launcher.console import counted, print_line, say
from launcher.errors import InputError
from launcher.lists import classes as of_classes
from launcher.lists import comparing, list_files, making
from launcher.lists.list_files import ENDINGS, Lines
from sagemaker_channels.samples.lst import Line

NAMES = ("train", "validation", "test")  # the names of up to three lists, as SageMaker's channels are named
dry_run_option = options.flag("--dry-run", help="Report what would change, and write nothing.")


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
    paths, skipped = tool.find_images(images, endings)
    folders = making.class_names(paths, images)
    names = list_files.read_names(how.classes, tool.account) or folders
    written = _files(images, how)
    folder = written[0].parent
    making.check_names(names, folders, str(how.classes))
    unused = [name for name in names if name not in folders]
    lists = dict(zip(written, _parts(how, making.make_lines(paths, names, one_hot=how.one_hot)), strict=True))
    for each, part in lists.items():
        if not part:
            units = "folders" if how.by == "folder" else "images"
            raise InputError(f"{each} would be empty: there are too few {units} for these shares")
        if each.exists() and not each.is_file():
            raise InputError(f"{each}: is not a file but a folder or a device; name the list by -o")
    notes = [f"{images}: {counted(len(paths), 'image')} in {counted(len(names), 'class')}"]
    notes += [f"left out: {list_files.described(skipped)}"] if skipped else []
    notes += [f"warning: no image of class {', '.join(unused)}"] if unused else []
    stale = [file for name in NAMES if how.split and (file := folder / f"{name}.lst").exists() and file not in written]
    why = "is of an earlier division, and may have images of the new lists"
    notes += [f"warning: {file} {why}" for file in stale]
    file = folder / CLASS_FILE
    if file.exists() and (others := list_files.read_names(str(file), tool.account)) != names:
        remedy = f"pass --classes {file} to keep their numbers, or -o to write to another folder, or delete the file"
        raise InputError(f"{file}: has other classes ({shorten(', '.join(others), 80)}); {remedy}")
    _replace(tool, lists, {file: names}, notes, dry_run=how.dry_run)


def _files(images: str, how: SimpleNamespace) -> list[Path]:
    if how.split:
        return [(how.output or Path()) / f"{name}.lst" for name in NAMES[: len(how.split)]]
    place = images if list_files.is_s3(images) else str(Path(images).resolve())
    return [how.output or Path(f"{place.rstrip('/').rpartition('/')[2]}.lst")]


def _parts(how: SimpleNamespace, lines: list[Line]) -> list[Lines]:
    """Return the lines of each list."""
    if how.split:
        return list(map(making.by_path, making.divide(lines, how.split, how.seed or 0, how.by or "class")))
    if how.seed is not None:
        random.Random(how.seed).shuffle(lines)
    return [making.by_path(lines)]


@options.command("edit", "lst edit train.lst --set dog=cat --dry-run")
@lists_argument
@options.group(
    "how",
    options.many("--set", "rules", metavar="KEY=CLASS", help="The new class of a path, folder or class. Repeatable."),
    click.option("--map", type=click.Path(), metavar="FILE", help="Lines of key, tab, class: rules as of --set."),
    options.many("--new-class", "new", metavar="NAME", help="Add a class. Repeatable."),
    classes_option,
    click.option(
        "-o",
        "--output",
        type=options.LocalPath(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write all lines to this list, and leave the LISTs as they are; a used row number is replaced by a free one.",
    ),
    click.option(
        "--keep",
        type=click.Choice(("first", "last")),
        help="With -o: whose labels a path gets that lists label differently, which is refused otherwise.",
    ),
    dry_run_option,
)
@tool_options
def edit(lists: tuple[str, ...], how: SimpleNamespace, tool: Tool) -> None:
    """Change, merge or split the classes of images, and join lists.

    Change LISTs by rules KEY=CLASS, from --set and --map. KEY is a path, a folder (cat/siamese/) or a present class, and CLASS is a
    name of the class file or a number, or several, separated by commas. A path's rule precedes that of its folder, and that
    precedes its class's. A class whose rule leaves it without a line is removed, as dog by dog=cat, and the numbers after it
    close the gap. Pass all lists of a data set together. Their class file changes with them. With -o, join the LISTs.
    """
    if not (how.rules or how.map or how.output):
        raise click.UsageError("nothing to do; pass rules by --set or --map, or -o to join the lists")
    if how.keep and not how.output:
        raise click.UsageError("--keep works only with -o; add it, or leave --keep out")
    places = list(dict.fromkeys(lists))
    for place in () if how.output else filter(list_files.is_s3, (*places, how.classes or "")):
        raise InputError(f"{place}: a list or class file is changed in place, on disk; copy the object here first")
    file = _class_file(tool, how, places)
    found, names = tool.read(places), list_files.read_names(file, tool.account)
    notes: list[str] = []
    if rules := _rules(tool, how):
        edited = of_classes.edit(list(found.values()), names, rules, how.new)
        found, names = dict(zip(places, edited.lists, strict=True)), edited.names
        notes += _notes(edited, places, how)
    if how.output is None:
        new = {Path(place): lines for place, lines in found.items()}
        _replace(tool, new, {Path(file): names} if file else {}, notes, dry_run=how.dry_run)
        return
    widths = {name: of_classes.columns([lines]) for name, lines in found.items() if lines}
    if len({*widths.values()}) > 1:
        shown = ", ".join(f"{width or 'no'} in {name}" for name, width in widths.items())
        raise InputError(f"the numbers of one-hot columns differ: {shown}; make all lists in one form")
    joined, left_out = making.join(found, how.keep)
    why = "left out, since another list has their paths"
    notes += [f"{name}: {counted(count, 'line')} {why}" for name, count in left_out.items()]
    beside = {how.output.parent / CLASS_FILE: names} if names else {}
    _replace(tool, {how.output: joined}, beside, notes, dry_run=how.dry_run)


def _class_file(tool: Tool, how: SimpleNamespace, places: Sequence[str]) -> str | None:
    """Return the class file of the lists. Raises InputError if lists to be joined have other classes."""
    if how.classes or how.output is None:
        return class_file(how.classes, places)
    found = [file for place in (*places, str(how.output)) if (file := class_file(None, [place]))]
    for file in found[1:]:
        if list_files.read_names(file, tool.account) != list_files.read_names(found[0], tool.account):
            remedy = "make lists that you join with the same --classes"
            raise InputError(f"{file}: has other classes than {found[0]}; {remedy}")
    return found[0] if found else None


def _notes(edited: of_classes.Edited, places: Sequence[str], how: SimpleNamespace) -> list[str]:
    """Return what a user should know about the numbers of classes."""
    notes = [f"removed class {name}; the numbers after it are one lower" for name in edited.removed]
    beside = [file.name for file in sorted(Path(places[0]).parent.glob("*.lst")) if str(file) not in places]
    if beside and edited.removed and not how.output:
        notes.append(f"warning: lists beside it, not passed, have the old classes: {', '.join(beside)}")
    return notes


def _rules(tool: Tool, how: SimpleNamespace) -> dict[str, list[str]]:
    """Return the rules. Raises InputError for a malformed one, or two for one key."""
    pairs = list_files.read_map(how.map, tool.account) if how.map else []
    for text in how.rules:
        key, _, value = text.rpartition("=")
        if not (key and value):
            raise InputError(f"--set {text}: expected KEY=CLASS, such as cat/7.jpg=dog")
        pairs.append((key, value))
    rules: dict[str, list[str]] = {}
    for key, value in pairs:
        words = value.split(",")
        if rules.setdefault(key, words) != words:
            raise InputError(f"{key!r} has two rules, {','.join(rules[key])} and {value}; leave one out")
    return rules


def _replace(
    tool: Tool, lists: Mapping[Path, Lines], names: Mapping[Path, list[str]], notes: Sequence[str], *, dry_run: bool
) -> None:
    """Replace the lists and class files that change, unless `dry_run`; report what changes, with the notes."""
    old = {file: tool.read([str(file)])[str(file)] for file in lists if file.exists()}
    changes = {file: comparing.compare(old.get(file, {}), lines) for file, lines in lists.items()}
    changed = {file: lines for file, lines in lists.items() if file not in old or any(changes[file].values())}
    named = {
        file: new
        for file, new in names.items()
        if not file.exists() or list_files.read_names(str(file), tool.account) != new
    }
    widths = of_classes.columns(old.values()), of_classes.columns(lists.values())
    classes = {file: comparing.by_class(found, *widths) for file, found in changes.items()}
    if not dry_run:
        list_files.replace_files(changed, named)
    if tool.as_json:
        reports = {
            str(file): {"lines": len(lists[file]), **comparing.counts(found), "classes": classes[file]}
            for file, found in changes.items()
        }
        options.print_json({"lists": reports, "class_files": [str(file) for file in named], "notes": notes})
        return
    for file, found in changes.items():
        what = in_words(found) if file in old else "a new file"
        print_line(f"{file}: {counted(len(lists[file]), 'line')}, {what}")
        if file in old:
            show_classes(classes[file])
    for file, new in named.items():
        print_line(f"{file}: {counted(len(new), 'class')}")
    for note in notes:
        print_line(note)
    if dry_run:
        say("nothing is written with --dry-run")
