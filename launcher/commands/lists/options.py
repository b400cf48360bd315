"""What the commands on lists share: reading, replacing, and reporting what has changed."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from launcher.commands.card import AccountOptions, Command, argument, flag, option
from launcher.console import Console, counted, print_line, say
from launcher.errors import InputError
from launcher.lists.classes import columns
from launcher.lists.comparing import Changes, compare
from launcher.lists.files import Lines, Stamp, is_s3, read_list, read_names, replace_files, stamp

CLASS_FILE = "classes.txt"
_MOST = 10  # examples, or classes, that a person reads; --json has all

LISTS = argument(nargs=-1, required=True, type=click.Path(), metavar="LIST...")  # str: may be an S3 URI
_CLASS_FILE = "The names of the classes, one per line, class 0 first; by default"
CLASSES = option(type=click.Path(), metavar="FILE", help=f"{_CLASS_FILE} {CLASS_FILE} beside the first LIST.")
NEW_CLASSES = option(type=click.Path(), metavar="FILE", help=f"{_CLASS_FILE} the folders in their order.")


def class_file(given: str | None, lists: Sequence[str]) -> str | None:
    """Return the class file of lists: the given one, or classes.txt beside the first list if that exists."""
    beside = Path(lists[0]).parent / CLASS_FILE
    return given or (str(beside) if not is_s3(lists[0]) and beside.exists() else None)


class ListCommand(AccountOptions, Command):
    """A command on lists."""

    def read(self, places: Sequence[str]) -> dict[str, Lines]:
        """Return the lines of each list. Raises InputError for a malformed list."""
        with self.working("reading the lists"):
            return {place: read_list(place, self.account) for place in places}

    @contextmanager
    def working(self, title: str) -> Iterator[None]:
        """Show that something is running, without the garbage collector, which would visit millions of lines again and again."""
        gc.disable()
        try:
            with Console(as_json=self.as_json).progress(title, counted=False):
                yield
        finally:
            gc.enable()


class WritingCommand(ListCommand):
    """A command that replaces lists."""

    dry_run: bool = flag(help="Report what would change, and write nothing.")

    def write(self, lists: Mapping[Path, Lines], names: Mapping[Path, list[str]], notes: Sequence[str]) -> int:
        """Replace lists in places of the user's choice; report what changes in those that exist."""
        stamps = {file: stamp(file) for file in (*lists, *names)}
        old: dict[Path, Lines] = {}
        for file in lists:
            if file.exists() and not file.is_file():
                raise InputError(f"{file}: is not a file but a folder or a device; name the list by -o")
            if stamps[file]:
                old |= {file: self.read([str(file)])[str(file)]}
        return self.replace(lists, names, notes, old, stamps)

    def replace(
        self,
        lists: Mapping[Path, Lines],
        names: Mapping[Path, list[str]],
        notes: Sequence[str],
        old: Mapping[Path, Lines],
        stamps: Mapping[Path, Stamp],
    ) -> int:
        """Replace what has changed, and report it with the notes.

        `old` are the lists that exist, `stamps` those of all files when they were read.
        """
        with self.working("comparing with the old lists"):
            changes = {file: compare(old.get(file, {}), lines) for file, lines in lists.items()}
        changed = {file: lists[file] for file in lists if file not in old or any(changes[file].counts().values())}
        before = {file: read_names(str(file), self.account) if file.exists() else None for file in names}
        named = {file: new for file, new in names.items() if before[file] != new}
        widths = columns(old.values()), columns(lists.values())
        reports: dict[str, dict[str, Any]] = {
            str(file): {"lines": len(lists[file]), **found.counts(), "classes": found.by_class(*widths)}
            for file, found in changes.items()
        }
        if not self.dry_run:
            with self.working("writing"):
                replace_files(changed, named, stamps)
        if self.as_json:
            self.print_json({"lists": reports, "class_files": [str(file) for file in named], "notes": notes})
            return 0
        for file, found in changes.items():
            lines = f"{file}: {counted(len(lists[file]), 'line')}"
            print_line(f"{lines}, {in_words(found)}" if file in old else f"{lines}, a new file")
            if file in old:
                show_classes(reports[str(file)]["classes"])
        for file, new in named.items():
            print_line(f"{file}: {counted(len(new), 'class')}")
        for note in notes:
            print_line(note)
        if self.dry_run:
            say("nothing is written with --dry-run")
        return 0


def in_words(changes: Changes) -> str:
    """Return `2 added, 1 relabelled`, or `unchanged`."""
    return ", ".join(f"{count:,} {kind}" for kind, count in changes.counts().items() if count) or "unchanged"


def show_classes(classes: Mapping[str, Mapping[str, int]]) -> None:
    """Print the changes of each class."""
    counts = {key: ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) for key, kinds in classes.items()}
    show_examples("", [f"class {key}: {text}" for key, text in counts.items()])


def show_examples(mark: str, examples: Sequence[str], colour: str | None = None) -> None:
    """Print the first few examples, and how many more there are."""
    for example in examples[:_MOST]:
        print_line(f"  {mark}{example}", colour)
    if examples[_MOST:]:
        print_line(f"  {len(examples) - _MOST:,} more; --json shows all")
