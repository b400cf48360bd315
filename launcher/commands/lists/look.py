"""Questions about lists that change nothing: `launch lst check`, `diff` and `stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from launcher.commands.card import argument, option
from launcher.commands.lists.options import (
    CLASSES,
    LISTS,
    ListCommand,
    class_file,
    in_words,
    show_classes,
    show_examples,
)
from launcher.commands.options import PlotFile
from launcher.console import counted, print_line, say, shown_path
from launcher.lists.classes import columns, counts_of
from launcher.lists.comparing import Problem, compare, problems_of, problems_with_images
from launcher.lists.files import Lines, read_bytes, read_names
from launcher.lists.image_files import ENDINGS, described, ending_of, find_images
from launcher.plot import new_figure, save
from sagemaker_channels.samples.lst import Line, parse_lst

_MOST_NAMES = 40  # below the bars of a picture


class Check(ListCommand):
    """Check lists, and compare them with their images.

    Check that each line of the LISTs of a data set is well-formed, that row numbers are unique, that no image is listed twice, and
    that classes are whole numbers without gaps; with --images, that each image has a line and each line an image. The exit
    code is 3 if something is wrong.
    """

    example = "lst check train.lst --images images"

    lists: tuple[str, ...] = LISTS
    images: str | None = option(
        type=click.Path(), metavar="PLACE", help="The folder, or s3://bucket/prefix, that the paths are relative to."
    )
    classes: str | None = CLASSES

    def run(self) -> int:
        """Print each kind of problem with its number and some examples."""
        lists: dict[str, Lines] = {}
        problems: list[Problem] = []
        with self.working("reading the lists"):
            for place in self.lists:
                lines, malformed = parse_lst(read_bytes(place, self.account), place)
                problems += [("malformed or repeated lines", malformed)] if malformed else []
                lists |= {place: lines} if lines or not malformed else {}
        file = class_file(self.classes, self.lists)
        names = read_names(file, self.account)
        with self.working("comparing the lines"):
            problems += problems_of(lists, names, file)
        count = sum(map(len, lists.values()))
        notes = counted(count, "line")
        if self.images:
            endings = {*ENDINGS, *(ending_of(path) for lines in lists.values() for path in lines)} - {""}
            with self.working(f"listing {self.images}"):
                found = find_images(self.images, endings, self.account)
                problems += problems_with_images(lists.values(), found.paths)
            notes += f", {counted(len(found.paths), 'image')}" + f", {described(found.skipped)}" * bool(found.skipped)
        if self.as_json:
            shown = [{"problem": what, "count": len(which), "examples": list(which)} for what, which in problems]
            self.print_json({"lines": count, "problems": shown})
        else:
            for what, which in problems:
                print_line(f"error: {what}: {len(which):,}", "red")
                show_examples("", which)
            print_line(f"{', '.join(self.lists)}: {notes}; {'the problems are above' if problems else 'no problems'}")
        return 3 if problems else 0


class DiffLists(ListCommand):
    """Compare two lists.

    Compare the lists A and B by path: images that were added, removed, relabelled (other labels), moved (the only one of its
    file name and labels that was removed, and the only one that was added) and renumbered (another row number). The exit code
    is 0 also if there are differences.
    """

    example = "lst diff train.lst more.lst"

    old: str = argument(type=click.Path(), metavar="A")
    new: str = argument(type=click.Path(), metavar="B")

    def run(self) -> int:
        """Print the differences of each kind, and their numbers by class."""
        old, new = (self.read([place])[place] for place in (self.old, self.new))
        with self.working("comparing"):
            changes = compare(old, new)
            classes = changes.by_class(columns([old]), columns([new]))
        if self.as_json:
            pairs = {kind: [_as_data(*pair) for pair in found] for kind, found in changes._asdict().items()}
            self.print_json({"counts": changes.counts(), "classes": classes, **pairs})
            return 0
        show_examples("+ ", [_in_words(line) for _, line in changes.added], "green")
        show_examples("- ", [_in_words(line) for line, _ in changes.removed], "red")
        show_examples("~ ", [f"{_in_words(old)} -> {_labels(new)}" for old, new in changes.relabelled], "yellow")
        show_examples("> ", [f"{before.path} -> {_in_words(after)}" for before, after in changes.moved], "cyan")
        show_classes(classes)
        before, after = (counted(len(lines), "line") for lines in (old, new))
        print_line(f"from {self.old} ({before}) to {self.new} ({after}): {in_words(changes)}")
        return 0


def _as_data(old: Line | None, new: Line | None) -> dict[str, Any]:
    """Return the line for programs; of a changed one, also what it was."""
    before, after = ({"path": x.path, "labels": x.labels, "index": x.index} if x else {} for x in (old, new))
    return (after or before) | {f"old_{key}": value for key, value in before.items() if value != after.get(key, value)}


def _labels(line: Line) -> str:
    return " ".join(f"{label:g}" for label in line.labels)


def _in_words(line: Line) -> str:
    return f"{line.path} {_labels(line)}"


class Stats(ListCommand):
    """Count the lines of each class.

    Count the lines of each class in the LISTs of a data set, and how many times more the largest class has than the smallest.
    """

    example = "lst stats train.lst"

    lists: tuple[str, ...] = LISTS
    classes: str | None = CLASSES
    plot: Path | None = option(
        type=PlotFile(dir_okay=False),
        metavar="FILE",
        help="Draw the classes' numbers of lines into a .png or .svg file.",
    )

    def run(self) -> int:
        """Print a row for each class, and draw the picture."""
        found = statistics(self.read(self.lists), read_names(class_file(self.classes, self.lists), self.account))
        if self.as_json:
            rows = zip(found.names, found.totals, *found.counts.values(), strict=True)
            classes = [
                {"class": n, "name": name, "total": total, "lists": dict(zip(found.counts, each, strict=True))}
                for n, (name, total, *each) in enumerate(rows)
            ]
            self.print_json({"lines": found.lines, "classes": classes, "imbalance": found.imbalance})
        else:
            self._show(found)
        if self.plot:
            draw(found, self.plot)
            say(f"plot {shown_path(self.plot)}")
        return 0

    def _show(self, found: Statistics) -> None:
        rows = [("class", *self.lists)]
        rows += [
            (f"{n} {name}" if name != str(n) else name, *(f"{counts[n]:,}" for counts in found.counts.values()))
            for n, name in enumerate(found.names)
        ]
        rows += [("all", *(f"{count:,}" for count in found.lines.values()))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *rest in rows:
            cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
            print_line("  ".join([first.ljust(widths[0]), *cells]))
        totals = found.totals
        if found.imbalance == 1:
            print_line("every class has the same number of lines")
        elif found.imbalance:
            largest, smallest = (each(range(len(totals)), key=totals.__getitem__) for each in (max, min))
            print_line(f"class {largest} has {found.imbalance:.3g} times as many lines as class {smallest}")
        for number in (n for n, total in enumerate(totals) if not total):
            print_line(f"class {number} has no line")


class Statistics(NamedTuple):
    """The numbers of lines."""

    lines: dict[str, int]  # of each list
    counts: dict[str, list[int]]  # of each list, by class
    names: list[str]  # of the classes, or their numbers

    @property
    def totals(self) -> list[int]:
        """The lines of each class in all lists."""
        return [sum(each) for each in zip(*self.counts.values(), strict=True)]

    @property
    def imbalance(self) -> float | None:
        """How many times more lines the largest class has than the smallest; None if a class has none."""
        return max(self.totals) / min(self.totals) if all(self.totals) and self.totals else None


def statistics(lists: Mapping[str, Lines], names: Sequence[str]) -> Statistics:
    """Count the lines of each class. Raises InputError if a label is not a class."""
    width = columns(lists.values())
    found: dict[str, Counter[int]] = {name: counts_of(lines, width) for name, lines in lists.items()}
    size = max([width, len(names), *(number + 1 for counts in found.values() for number in counts)])
    counts = {name: [each[number] for number in range(size)] for name, each in found.items()}
    titles = [*names, *map(str, range(len(names), size))]
    return Statistics({name: len(lines) for name, lines in lists.items()}, counts, titles)


def draw(found: Statistics, file: Path) -> None:
    """Draw a bar for each class, with a part for each list. Raises RefusedError if the file cannot be written."""
    classes = range(len(found.names))
    figure = new_figure(min(16, 4 + 0.25 * len(classes)), 4)
    axes = figure.add_subplot()
    below = [0] * len(classes)
    for name, counts in found.counts.items():
        axes.bar(classes, counts, bottom=below, label=Path(name).stem, width=0.9)
        below = [low + count for low, count in zip(below, counts, strict=True)]
    if len(classes) <= _MOST_NAMES:
        axes.set_xticks(classes, found.names, rotation=45, ha="right")
    else:
        axes.set_xlabel("class")
    axes.set_ylabel("lines")
    axes.grid(axis="y", alpha=0.3)
    if len(found.counts) > 1:
        axes.legend(fontsize=8)
    save(figure, file)
