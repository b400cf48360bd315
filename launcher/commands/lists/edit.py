"""Changes of classes in place: `launch lst split-class`, `merge-classes` and `relabel`."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.commands.card import option, repeatable
from launcher.commands.lists.options import CLASSES, LISTS, WritingCommand, class_file
from launcher.errors import InputError
from launcher.lists.classes import columns, counts_of
from launcher.lists.comparing import CLOSE_GAPS, gaps
from launcher.lists.editing import DataSet, Edited, merge_classes, relabel, split_class
from launcher.lists.files import is_s3, read_map, read_names, stamp

_MAP = click.Path()  # str: may be an S3 URI


class EditingCommand(WritingCommand):
    """A command that changes the classes of lists in place."""

    lists: tuple[str, ...] = LISTS
    classes: str | None = CLASSES
    renumbers = True
    """Whether a list that is not passed would have other classes afterwards."""

    def edited(self, data: DataSet) -> Edited:
        """Return the changed lists."""
        raise NotImplementedError

    def run(self) -> int:
        """Read the lists, change all of them together, and replace them."""
        for place in filter(is_s3, (*self.lists, self.classes or "")):
            raise InputError(f"{place}: a list or class file is changed in place, on disk; copy the object here first")
        files = [Path(place) for place in dict.fromkeys(self.lists)]
        names = class_file(self.classes, self.lists)
        stamps = {file: stamp(file) for file in (*files, *([Path(names)] if names else []))}
        old = dict(zip(files, self.read(self.lists).values(), strict=True))
        with self.working("changing the classes"):
            new = self.edited(DataSet.of(list(old.values()), read_names(names, self.account)))
        lists = dict(zip(files, new.lists, strict=True))
        width = columns(new.lists)
        if missing := gaps(set().union(*(counts_of(lines, width) for lines in new.lists)), width):
            shown = ", ".join(missing[:10]) + ", ..." * bool(missing[10:])
            new.notes.append(f"warning: classes without a line, although a higher one has some: {shown}; {CLOSE_GAPS}")
        others = [file.name for file in sorted(files[0].parent.glob("*.lst")) if file not in files]
        if others and self.renumbers:
            new.notes.append(f"warning: lists beside it, not passed, have the old classes: {', '.join(others)}")
        return self.replace(lists, {Path(names): new.names} if names else {}, new.notes, old, stamps)


class SplitClass(EditingCommand):
    """Split a class into several.

    Split a class of LISTs into parts: by --map, or by the folders of its images, at the first level at which they differ. The
    first part takes the class's number, unless images stay in the class, and the others follow the highest class, so no other
    number changes. Pass all lists of a data set together. Their class file is extended.
    """

    example = "lst split-class train.lst --classes classes.txt --class cat --dry-run"

    name: str = option("--class", required=True, metavar="CLASS", help="The class, by its number or name.")
    map: str | None = option(
        type=_MAP, metavar="FILE", help="Lines of path, tab, name of the part; a path may be a folder: cat/siamese/."
    )

    def edited(self, data: DataSet) -> Edited:
        """Split the class."""
        return split_class(data, data.number(self.name), read_map(self.map, self.account) if self.map else None)


class MergeClasses(EditingCommand):
    """Merge classes into one.

    Merge classes of LISTs into one. The classes after them get new numbers, so that there are no gaps. Pass all lists of a data
    set together. Their class file is shortened.
    """

    example = "lst merge-classes train.lst --class 1 --into 0 --dry-run"

    merged: tuple[str, ...] = repeatable(
        "--class", required=True, metavar="CLASS", help="A class to merge, by its number or name. Repeatable."
    )
    into: str = option(required=True, metavar="CLASS", help="The class that remains.")

    def edited(self, data: DataSet) -> Edited:
        """Merge the classes."""
        return merge_classes(data, {data.number(word) for word in self.merged}, data.number(self.into))


class Relabel(EditingCommand):
    """Change the classes of images by a map.

    Change the classes of the images that a map names by path, by folder or by present class. A path's own line precedes that
    of its folder, and that precedes its class's. Several classes on a line make it multi-label.
    """

    example = "lst relabel train.lst --map map.txt"
    renumbers = False

    map: str = option(
        type=_MAP,
        required=True,
        metavar="FILE",
        help="Lines of path, folder (cat/) or class, tab, new class, by number or, with --classes, by name.",
    )

    def edited(self, data: DataSet) -> Edited:
        """Apply the map."""
        return relabel(data, read_map(self.map, self.account))
