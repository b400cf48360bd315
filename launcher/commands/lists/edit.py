"""`launch lst edit`: other classes for images, folders and classes in all lists, and lists joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import click

from launcher.commands import options
from launcher.commands.lists.options import (
    CLASS_FILE,
    Tool,
    class_file,
    classes_option,
    dry_run_option,
    lists_argument,
    tool_options,
)
from launcher.console import counted
from launcher.errors import InputError
from launcher.lists import classes as of_classes
from launcher.lists import comparing, files, making


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
    """Change the classes of images, merge or split classes, and join lists.

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
    for place in () if how.output else filter(files.is_s3, (*places, how.classes or "")):
        raise InputError(f"{place}: a list or class file is changed in place, on disk; copy the object here first")
    file = _class_file(tool, how, places)
    found, names = tool.read(places), files.read_names(file, tool.account)
    notes: list[str] = []
    if rules := _rules(tool, how):
        with tool.working("changing the classes"):
            edited = of_classes.edit(list(found.values()), names, rules, how.new)
        found, names = dict(zip(places, edited.lists, strict=True)), edited.names
        notes += _notes(edited, places, how)
    if how.output is None:
        new = {Path(place): lines for place, lines in found.items()}
        tool.replace(new, {Path(file): names} if file else {}, notes, dry_run=how.dry_run)
        return
    widths = {name: of_classes.columns([lines]) for name, lines in found.items() if lines}
    if len({*widths.values()}) > 1:
        shown = ", ".join(f"{width or 'no'} in {name}" for name, width in widths.items())
        raise InputError(f"the numbers of one-hot columns differ: {shown}; make all lists in one form")
    joined, left_out = making.join(found, how.keep)
    why = "left out, since another list has their paths"
    notes += [f"{name}: {counted(count, 'line')} {why}" for name, count in left_out.items()]
    beside = {how.output.parent / CLASS_FILE: names} if names else {}
    tool.replace({how.output: joined}, beside, notes, dry_run=how.dry_run)


def _class_file(tool: Tool, how: SimpleNamespace, places: Sequence[str]) -> str | None:
    """Return the class file of the lists. Raises InputError if lists to be joined have other classes."""
    if how.classes or how.output is None:
        return class_file(how.classes, places)
    found = [file for place in (*places, str(how.output)) if (file := class_file(None, [place]))]
    for file in found[1:]:
        if files.read_names(file, tool.account) != files.read_names(found[0], tool.account):
            remedy = "make lists that you join with the same --classes"
            raise InputError(f"{file}: has other classes than {found[0]}; {remedy}")
    return found[0] if found else None


def _notes(edited: of_classes.Edited, places: Sequence[str], how: SimpleNamespace) -> list[str]:
    """Return what a user should know about the numbers of classes."""
    notes = [f"removed class {name}; the numbers after it are one lower" for name in edited.removed]
    width = of_classes.columns(edited.lists)
    used = set().union(*(of_classes.counts_of(lines, width) for lines in edited.lists))
    if missing := comparing.gaps(used, width):
        shown = ", ".join(missing[:10]) + ", ..." * bool(missing[10:])
        why = f"classes without a line, although a higher one has some: {shown}; {comparing.CLOSE_GAPS}"
        notes.append(f"warning: {why}")
    beside = [file.name for file in sorted(Path(places[0]).parent.glob("*.lst")) if str(file) not in places]
    if beside and edited.removed and not how.output:
        notes.append(f"warning: lists beside it, not passed, have the old classes: {', '.join(beside)}")
    return notes


def _rules(tool: Tool, how: SimpleNamespace) -> dict[str, list[str]]:
    """Return the rules. Raises InputError for a malformed one, or two for one key."""
    pairs = files.read_map(how.map, tool.account) if how.map else []
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
