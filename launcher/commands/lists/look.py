"""`launch lst check` and `diff`, which change nothing, and what all commands on lists share: options, reading, examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from launcher.commands import options
from launcher.console import Console, counted, print_line
from launcher.errors import InputError
from launcher.lists import classes as of_classes
from launcher.lists import comparing, list_files
from launcher.lists.list_files import ENDINGS, Lines
from sagemaker_channels.samples.lst import Line, parse_lst

if TYPE_CHECKING:
    from launcher.aws.session import Account

CLASS_FILE = "classes.txt"
_MOST = 10  # examples that a person reads; --json has all

# As str: they may be URIs.
lists_argument = click.argument("lists", nargs=-1, required=True, type=click.Path(), metavar="LIST...")
classes_option = click.option(
    "--classes",
    type=click.Path(),
    metavar="FILE",
    help=f"The names of the classes, one per line, class 0 first; by default {CLASS_FILE} beside the first LIST.",
)


class Tool(NamedTuple):
    """Reading lists, in the account of those in S3."""

    region: str | None
    profile: str | None
    as_json: bool

    def account(self) -> Account:
        return options.open_account(self.region, self.profile)

    def read(self, places: Sequence[str]) -> dict[str, Lines]:
        """Return the lines of each list. Raises InputError for a malformed list."""
        return {place: list_files.read_list(place, self.account) for place in places}

    def find_images(self, images: str, endings: Collection[str]) -> tuple[list[str], Counter[str]]:
        """Return what `list_files.find_images` does, and show that it is running."""
        with Console(as_json=self.as_json).progress(f"listing {images}", counted=False):
            return list_files.find_images(images, endings, self.account)


tool_options = options.group("tool", options.region_option, options.profile_option, options.json_option, kind=Tool)


def class_file(given: str | None, lists: Sequence[str]) -> str | None:
    """Return the class file of lists: the given one, or classes.txt beside the first list if that exists."""
    beside = Path(lists[0]).parent / CLASS_FILE
    return given or (str(beside) if not list_files.is_s3(lists[0]) and beside.exists() else None)


def in_words(changes: comparing.Changes) -> str:
    """Return `2 added, 1 relabelled`, or `unchanged`."""
    return ", ".join(f"{count:,} {kind}" for kind, count in comparing.counts(changes).items() if count) or "unchanged"


def show_classes(classes: Mapping[str, Mapping[str, int]]) -> None:
    counts = {key: ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) for key, kinds in classes.items()}
    show_examples([f"class {key}: {text}" for key, text in counts.items()])


def show_examples(examples: Sequence[str], colour: str | None = None) -> None:
    """Print the first few examples, and how many more there are."""
    for example in examples[:_MOST]:
        print_line(f"  {example}", colour)
    if examples[_MOST:]:
        print_line(f"  {len(examples) - _MOST:,} more; --json shows all")


@options.command("check", "lst check train.lst --images images")
@lists_argument
@click.option(
    "--images",
    type=click.Path(),
    metavar="PLACE",
    help="The folder, or s3://bucket/prefix, that the paths are relative to.",
)
@classes_option
@tool_options
def check(lists: tuple[str, ...], images: str | None, classes: str | None, tool: Tool) -> int:
    """Check lists and their images, and count the lines of each class.

    Check that each line of the LISTs of a data set is well-formed, that row numbers are unique, that no image is listed twice, and
    that classes are whole numbers without gaps; with --images, that each image has a line and each line an image. Then count the
    lines of each class. The exit code is 3 if something is wrong.
    """
    found: dict[str, Lines] = {}
    wrong = list[str]()
    for place in lists:
        lines, malformed = parse_lst(list_files.read_bytes(place, tool.account), place)
        wrong += malformed
        found |= {place: lines} if lines or not malformed else {}
    file = class_file(classes, lists)
    names = list_files.read_names(file, tool.account)
    problems = {"malformed or repeated lines": wrong, **comparing.problems_of(found, names, file)}
    total = sum(map(len, found.values()))
    notes = counted(total, "line")
    if images:
        endings = {*ENDINGS, *(list_files.ending_of(path) for lines in found.values() for path in lines)} - {""}
        paths, skipped = tool.find_images(images, endings)
        problems |= comparing.problems_with_images(found.values(), paths)
        notes += f", {counted(len(paths), 'image')}" + f", {list_files.described(skipped)}" * bool(skipped)
    problems = {what: which for what, which in problems.items() if which}
    try:
        rows = _classes(found, names)
    except InputError:  # a label is not a class, which is one of the problems
        rows = []
    if tool.as_json:
        shown = [{"problem": what, "count": len(which), "examples": list(which)} for what, which in problems.items()]
        options.print_json({"lines": total, "problems": shown, "classes": rows})
    else:
        for what, which in problems.items():
            print_line(f"error: {what}: {len(which):,}", "red")
            show_examples(which)
        for each in rows:
            counts = ", ".join(f"{count:,} in {name}" for name, count in each["lists"].items())
            print_line(f"class {each['class']} {each['name']}: {counts}")
        print_line(f"{', '.join(lists)}: {notes}; {'the problems are above' if problems else 'no problems'}")
    return 3 if problems else 0


def _classes(lists: Mapping[str, Lines], names: Sequence[str]) -> list[dict[str, Any]]:
    width = of_classes.columns(lists.values())
    found = {name: of_classes.counts_of(lines, width) for name, lines in lists.items()}
    size = max([width, len(names), *(number + 1 for counts in found.values() for number in counts)])
    rows = []
    for number in range(size):
        counts = {name: each[number] for name, each in found.items()}
        name = names[number] if number < len(names) else str(number)
        rows.append({"class": number, "name": name, "total": sum(counts.values()), "lists": counts})
    return rows


@options.command("diff", "lst diff train.lst more.lst")
@click.argument("a", type=click.Path(), metavar="A")
@click.argument("b", type=click.Path(), metavar="B")
@tool_options
def diff(a: str, b: str, tool: Tool) -> None:
    """Compare two lists.

    Compare the lists A and B by path: images that were added, removed, relabelled (other labels) and renumbered (another row
    number). The exit code is 0 also if there are differences.
    """
    old, new = (tool.read([place])[place] for place in (a, b))
    changes = comparing.compare(old, new)
    classes = comparing.by_class(changes, of_classes.columns([old]), of_classes.columns([new]))
    if tool.as_json:
        pairs = {kind: [_as_data(*pair) for pair in found] for kind, found in changes.items()}
        options.print_json({"counts": comparing.counts(changes), "classes": classes, **pairs})
        return
    marks = {"added": "+ green", "removed": "- red", "relabelled": "~ yellow"}
    for kind, (mark, colour) in ((kind, text.split()) for kind, text in marks.items()):
        shown = [" -> ".join(comparing.as_text(line) for line in pair if line) for pair in changes[kind]]
        show_examples([f"{mark} {text}" for text in shown], colour)
    show_classes(classes)
    before, after = (counted(len(lines), "line") for lines in (old, new))
    print_line(f"from {a} ({before}) to {b} ({after}): {in_words(changes)}")


def _as_data(old: Line | None, new: Line | None) -> dict[str, Any]:
    """Return the line for programs; of a changed one, also what it was."""
    before, after = ({"path": x.path, "labels": x.labels, "index": x.index} if x else {} for x in (old, new))
    return (after or before) | {f"old_{key}": value for key, value in before.items() if value != after.get(key, value)}
