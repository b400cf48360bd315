"""How many lines each class has in each list, as data and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from launcher.lists.classes import columns, counts_of
from launcher.lists.files import Lines
from launcher.plot import new_figure, save

_MOST_NAMES = 40  # below the bars of a picture


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
        axes.set_xticks(classes, found.names, rotation=45, ha="right", fontsize=8)
    else:
        axes.set_xlabel("class", fontsize=8)
    axes.set_ylabel("lines", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    if len(found.counts) > 1:
        axes.legend(fontsize=8)
    save(figure, file)
