"""Lines for the images of a folder per class, divided into lists by a seed; and several lists joined into one."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from launcher.console import counted
from launcher.errors import InputError, did_you_mean
from launcher.lists.classes import as_labels
from launcher.lists.list_files import Lines
from sagemaker_channels.samples.lst import Line


def class_names(paths: Iterable[str], place: str) -> list[str]:
    """Return the first folders of paths, sorted. Raises InputError for an image in no folder."""
    if outside := [path for path in paths if "/" not in path]:
        raise InputError(
            f"{place}: {counted(len(outside), 'image')} in no folder, first {outside[0]!r}; the class is the first folder of the"
            " path: move each image into its class's folder, or name the folder above"
        )
    return sorted({path.partition("/")[0] for path in paths})


def check_names(names: Sequence[str], folders: Sequence[str], file: str) -> None:
    """Raise InputError for a folder of images that has no name in a class file."""
    for folder in folders:
        if folder not in names:
            near = did_you_mean(folder, [name for name in names if name not in folders])
            raise InputError(f"{file}: folder {folder!r} has images and no line{near}; add it, or move the folder away")


def make_lines(paths: Iterable[str], names: Sequence[str], *, one_hot: bool) -> list[Line]:
    """Return a line for each path, numbered from 0. Raises InputError for a path that no line can hold."""
    if one_hot and len(names) == 1:
        raise InputError(f"the only class is {names[0]!r}, and a one-hot list needs at least two; leave out --one-hot")
    labels = {name: as_labels((number,), len(names) * one_hot) for number, name in enumerate(names)}
    lines = []
    for index, path in enumerate(paths):
        if path != path.strip() or set(path) & set("\t\r\n"):
            raise InputError(
                f"{path!r}: a list cannot hold a path with a tab, a line end or blanks around it; rename it"
            )
        lines.append(Line(index, labels[path.partition("/")[0]], path))
    return lines


def divide(lines: Sequence[Line], ratios: Sequence[float], seed: int, by: str) -> list[list[Line]]:
    """Divide lines among lists, each class by the ratios, in an order shuffled by the seed; the class is the first folder.

    The numbers of each class are its exact quotas, rounded up or down so that all classes together have the ratios as well. The
    first list gets something of every class. By `class` single images are divided, by `folder` those of one folder stay together.
    """
    chance = random.Random(seed)
    units: defaultdict[str, dict[str, list[Line]]] = defaultdict(dict)  # what stays together, by class
    for line in lines:
        key = line.path.rpartition("/")[0] if by == "folder" else line.path
        units[line.path.partition("/")[0]].setdefault(key, []).append(line)
    lists: list[list[Line]] = [[] for _ in ratios]
    debts = [0.0] * len(ratios)
    for groups in units.values():
        shuffled = list(groups.values())
        chance.shuffle(shuffled)
        rest = iter(shuffled)
        for chosen, count in zip(lists, _rounded(len(shuffled), ratios, debts), strict=True):
            chosen.extend(line for group in islice(rest, count) for line in group)
    for chosen in lists:
        chance.shuffle(chosen)
    return lists


def _rounded(count: int, ratios: Sequence[float], debts: list[float]) -> list[int]:
    """Return whole numbers near `count * ratio`, in sum `count`; what a list is owed is added to `debts`."""
    quotas = [count * ratio for ratio in ratios]
    counts = [int(quota + 1e-9) for quota in quotas]
    counts[0] = max(counts[0], 1)
    for place, quota in enumerate(quotas):
        debts[place] += quota - counts[place]
    while sum(counts) < count:
        open_places = [place for place, quota in enumerate(quotas) if counts[place] < quota - 1e-9]
        place = max(open_places, key=lambda place: debts[place])
        counts[place] += 1
        debts[place] -= 1
    return counts


def by_path(lines: Iterable[Line]) -> Lines:
    return {line.path: line for line in lines}


def join(lists: Mapping[str, Lines], keep: str | None) -> tuple[Lines, Counter[str]]:
    """Return the lines of all lists as one, and how many of each list were left out because another has the path.

    A line keeps its row number unless an earlier one has it. `keep` is `first` or `last`: whose labels a path gets that two lists
    label differently; with None, InputError refuses it.
    """
    joined: Lines = {}
    left_out: Counter[str] = Counter()
    homes: dict[str, str] = {}
    for name, lines in lists.items():
        for path, line in lines.items():
            other = joined.setdefault(path, line)
            home = homes.setdefault(path, name)
            if home == name:
                continue
            if other.labels != line.labels and keep is None:
                raise InputError(
                    f"{name}: {path!r} has other labels in {home}; correct one, or pass --keep first or --keep last"
                )
            left_out[home if keep == "last" else name] += 1
            if keep == "last":
                joined[path], homes[path] = Line(other.index, line.labels, path), name
    taken: set[int] = set()
    free = max((line.index for line in joined.values()), default=-1) + 1
    for path, line in joined.items():
        if line.index in taken:
            joined[path] = Line(free, line.labels, path)
            free += 1
        taken.add(joined[path].index)
    return joined, left_out
