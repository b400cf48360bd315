"""What the commands on lists share: reading, replacing, and reporting what has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from launcher.commands import options
from launcher.console import Console, counted, print_line, say
from launcher.lists import classes as of_classes
from launcher.lists import comparing, files
from launcher.lists.files import Lines

if TYPE_CHECKING:
    from launcher.aws.account import Account

CLASS_FILE = "classes.txt"
_MOST = 10  # examples that a person reads; --json has all

lists_argument = click.argument(
    "lists", nargs=-1, required=True, type=click.Path(), metavar="LIST..."
)  # str: may be URIs
classes_option = click.option(
    "--classes",
    type=click.Path(),
    metavar="FILE",
    help=f"The names of the classes, one per line, class 0 first; by default {CLASS_FILE} beside the first LIST.",
)
dry_run_option = options.flag("--dry-run", help="Report what would change, and write nothing.")


class Tool(NamedTuple):
    """Reading lists, writing them, and reporting what changes."""

    region: str | None
    profile: str | None
    as_json: bool

    def account(self) -> Account:
        """Open the account of lists and images in S3."""
        return options.open_account(self.region, self.profile)

    def read(self, places: Sequence[str]) -> dict[str, Lines]:
        """Return the lines of each list. Raises InputError for a malformed list."""
        with self.working("reading the lists"):
            return {place: files.read_list(place, self.account) for place in places}

    def working(self, title: str) -> AbstractContextManager[Any]:
        """Show that something is running."""
        return Console(as_json=self.as_json).progress(title, counted=False)

    def replace(
        self, lists: Mapping[Path, Lines], names: Mapping[Path, list[str]], notes: Sequence[str], *, dry_run: bool
    ) -> None:
        """Replace the lists and class files that change, unless `dry_run`; report what changes, with the notes."""
        old = {file: self.read([str(file)])[str(file)] for file in lists if file.exists()}
        changes = {file: comparing.compare(old.get(file, {}), lines) for file, lines in lists.items()}
        changed = {file: lines for file, lines in lists.items() if file not in old or any(changes[file].values())}
        named = {
            file: new
            for file, new in names.items()
            if not file.exists() or files.read_names(str(file), self.account) != new
        }
        widths = of_classes.columns(old.values()), of_classes.columns(lists.values())
        classes = {file: comparing.by_class(found, *widths) for file, found in changes.items()}
        if not dry_run:
            with self.working("writing"):
                files.replace_files(changed, named)
        if self.as_json:
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


tool_options = options.group("tool", options.region_option, options.profile_option, options.json_option, kind=Tool)


def class_file(given: str | None, lists: Sequence[str]) -> str | None:
    """Return the class file of lists: the given one, or classes.txt beside the first list if that exists."""
    beside = Path(lists[0]).parent / CLASS_FILE
    return given or (str(beside) if not files.is_s3(lists[0]) and beside.exists() else None)


def in_words(changes: comparing.Changes) -> str:
    """Return `2 added, 1 relabelled`, or `unchanged`."""
    return ", ".join(f"{count:,} {kind}" for kind, count in comparing.counts(changes).items() if count) or "unchanged"


def show_classes(classes: Mapping[str, Mapping[str, int]]) -> None:
    """Print what each class gained and lost."""
    counts = {key: ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) for key, kinds in classes.items()}
    show_examples([f"class {key}: {text}" for key, text in counts.items()])


def show_examples(examples: Sequence[str], colour: str | None = None) -> None:
    """Print the first few examples, and how many more there are."""
    for example in examples[:_MOST]:
        print_line(f"  {example}", colour)
    if examples[_MOST:]:
        print_line(f"  {len(examples) - _MOST:,} more; --json shows all")
