"""The classes of lines: read from their labels, changed, and written back.

A line's labels are its classes, one or several. If all lines have the same number of labels, at least two, and all are 0 or 1, the
list is one-hot, as the built-in image classification's `multi_label` needs: a column for each class.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache

from launcher.errors import InputError
from launcher.lists.files import Lines
from sagemaker_channels.samples.lst import Line

Classes = tuple[int, ...]
MOST_CLASSES = 1_000_000  # a larger label is an identifier or a measurement, and no class
IN_WORDS = f"whole numbers from 0 to {MOST_CLASSES - 1:,}"
Change = Callable[[str, Classes], Iterable[int]]  # the new classes of a path and its classes


def columns(lists: Iterable[Lines]) -> int:
    """Return the number of classes of one-hot lists, and 0 for others."""
    labels = {line.labels for lines in lists for line in lines.values()}
    widths = {len(each) for each in labels}
    one_hot = len(widths) == 1 and widths != {1} and all(set(each) <= {0.0, 1.0} for each in labels)
    return widths.pop() if one_hot else 0


@lru_cache(maxsize=1 << 16)  # few of a list's labels differ
def as_classes(labels: tuple[float, ...], width: int) -> Classes | None:
    """Return the classes that labels name; None if one is no class."""
    if width:
        return tuple(number for number, label in enumerate(labels) if label)
    is_class = all(0 <= label < MOST_CLASSES and label.is_integer() for label in labels)
    return tuple(map(int, labels)) if is_class else None


@lru_cache(maxsize=1 << 16)
def as_labels(classes: Classes, width: int) -> tuple[float, ...]:
    """Return the labels that name these classes; with a width, one-hot."""
    return tuple(float(number in classes) for number in range(width)) if width else tuple(map(float, classes))


def classes_of(line: Line, width: int) -> Classes:
    """Return a line's classes. Raises InputError if a label is not a class."""
    classes = as_classes(line.labels, width)
    if classes is None:
        shown = ", ".join(f"{label:g}" for label in line.labels)
        raise InputError(f"the label of {line.path!r} is {shown}; classes are {IN_WORDS}")
    return classes


def relabelled(lines: Lines, change: Change, width: int, new_width: int) -> Lines:
    """Return the lines with changed classes; a line that stays as it was is the same object."""
    result = {}
    for path, line in lines.items():
        old = classes_of(line, width)
        new = tuple(dict.fromkeys(change(path, old)))
        is_same = new == old and width == new_width
        result[path] = line if is_same else Line(line.index, as_labels(new, new_width), path)
    return result


def subfolders(paths: Collection[str]) -> dict[str, str]:
    """Return the folder of each path, at the first level at which they differ; those directly above that level are left out."""
    folders = {path: path.split("/")[:-1] for path in paths}
    common = os.path.commonpath({"/".join(folder) for folder in folders.values()})
    level = len(common.split("/")) if common else 0
    return {path: folder[level] for path, folder in folders.items() if len(folder) > level}


def mapped(rules: Mapping[str, tuple[int, ...]], by_class: Mapping[int, Classes]) -> Change:
    """Return the change by a map: a path's own rule precedes that of its nearest folder, and that precedes its classes'."""
    folders = {key for key in rules if key.endswith("/")}

    def change(path: str, classes: Classes) -> Iterable[int]:
        if path in rules:
            return rules[path]
        end = path.rfind("/") if folders else -1
        while end >= 0:
            if path[: end + 1] in folders:
                return rules[path[: end + 1]]
            end = path.rfind("/", 0, end)
        return [new for number in classes for new in by_class.get(number, (number,))]

    return change


def counts_of(lines: Lines, width: int) -> Counter[int]:
    """Return the number of lines of each class. Raises InputError if a label is not a class."""
    of_labels = Counter(line.labels for line in lines.values())
    counts: Counter[int] = Counter()
    for line in {line.labels: line for line in lines.values()}.values():
        for number in classes_of(line, width):
            counts[number] += of_labels[line.labels]
    return counts
