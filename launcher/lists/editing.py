"""Changes of classes in all lists of a data set together: one class into several, several into one, and by a map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from launcher.console import counted
from launcher.errors import InputError, did_you_mean
from launcher.lists.classes import (
    MOST_CLASSES,
    Change,
    Classes,
    classes_of,
    columns,
    counts_of,
    mapped,
    relabelled,
    subfolders,
)
from launcher.lists.files import Lines

Rules = Mapping[str, tuple[str, ...]]  # a map's lines


class DataSet(NamedTuple):
    """Lists whose classes have the same numbers."""

    lists: Sequence[Lines]
    names: Sequence[str]  # of the classes; empty if there is no class file
    width: int  # the number of columns if the lists are one-hot, and else 0
    size: int  # the number of classes

    @classmethod
    def of(cls, lists: Sequence[Lines], names: Sequence[str]) -> DataSet:
        """Return lists with what is known of their classes. Raises InputError for a label that is not a class, or has no name."""
        width = columns(lists)
        highest = max((number for lines in lists for number in counts_of(lines, width)), default=-1)
        size = max(width, highest + 1)
        if names and size > len(names):
            raise InputError(
                f"the lists have {size} classes, and the class file has {len(names)}; correct classes.txt beside the lists, or pass"
                " another file by --classes"
            )
        return cls(lists, names, width, max(size, len(names)))

    def number(self, word: str) -> int:
        """Return the class that a user means by its name or number. Raises InputError."""
        if word in self.names:
            return self.names.index(word)
        if word.isdecimal() and int(word) < self.size:
            return int(word)
        known = f"expected a number from 0 to {self.size - 1}" + " or a name of the class file" * bool(self.names)
        raise InputError(f"class {word!r} does not exist{did_you_mean(word, self.names)}; {known}")

    def title(self, number: int) -> str:
        """Return `class 3 (dog)`, or `class 3` without names."""
        return f"class {number} ({self.names[number]})" if number < len(self.names) else f"class {number}"

    def paths_of(self, number: int) -> set[str]:
        """Return the paths of a class. Raises InputError if it has none."""
        found = {p for lines in self.lists for p, line in lines.items() if number in classes_of(line, self.width)}
        if not found:
            raise InputError(f"{self.title(number)} has no line in these lists")
        return found


class Edited(NamedTuple):
    """The result of a change."""

    lists: list[Lines]
    names: list[str]
    notes: list[str]  # about numbers of classes


def split_class(data: DataSet, split: int, rules: Rules | None) -> Edited:
    """Split a class by a map from paths and folders to names of parts, or by the folders of its images.

    The first part takes the class's number, unless images stay in the class; the others follow the highest class.
    """
    paths = data.paths_of(split)
    parts = subfolders(paths) if rules is None else _parts(data.title(split), paths, rules)
    sizes = Counter(parts.values())
    stay = len(paths) - len(parts)
    if len(sizes) + bool(stay) < 2:
        remedy = "pass --map, with a line for each image or folder" if rules is None else "name a second one in the map"
        raise InputError(f"{data.title(split)} has one part only; {remedy}")
    free = [*[split] * (not stay), *range(data.size, data.size + len(sizes))]
    numbers = dict(zip(sorted(sizes), free, strict=False))
    lists = _changed(
        data,
        lambda path, classes: [numbers.get(parts.get(path, ""), each) if each == split else each for each in classes],
        max(data.size, max(numbers.values()) + 1),
    )
    names = dict(enumerate(data.names))
    for part, number in numbers.items():
        names[number] = f"{data.names[split]}/{part}" if part in data.names and names.get(number) != part else part
    notes = [f"class {number} is {part}: {counted(sizes[part], 'image')}" for part, number in numbers.items()]
    notes += [f"{data.title(split)} keeps {counted(stay, 'image')}"] * bool(stay)
    return Edited(lists, list(names.values()) if data.names else [], notes)


def merge_classes(data: DataSet, merged: Collection[int], into: int) -> Edited:
    """Merge classes into one; the numbers after a merged class close its gap."""
    kept = [number for number in range(data.size) if number == into or number not in merged]
    if data.width and len(kept) == 1:
        raise InputError("a one-hot list needs at least two classes; merge fewer of them")
    position = {old: new for new, old in enumerate(kept)}
    numbers = {old: position[into if old in merged else old] for old in range(data.size)}
    lists = _changed(data, lambda path, classes: [numbers[each] for each in classes], len(kept))
    names = [data.names[number] for number in kept] if data.names else []
    gone = sorted({*merged} - {into})
    if not gone:
        raise InputError(f"{data.title(into)} would be merged into itself; name another class")
    notes = [f"{data.title(old)} is merged into {data.title(into)}" for old in gone]
    notes += [
        f"classes {first + 1} to {end - 1} are now {first + 1 - place} to {end - 1 - place}"
        if first + 2 < end
        else f"class {end - 1} is now {end - 1 - place}"
        for place, (first, end) in enumerate(pairwise([*gone, data.size]), start=1)
        if first + 1 < end
    ]
    return Edited(lists, names, notes)


def relabel(data: DataSet, rules: Rules) -> Edited:
    """Give paths, folders (`cat/`) or classes the classes of a map; a path's own line precedes its folder's and its class's."""
    by_path: dict[str, Classes] = {}
    by_class: dict[int, Classes] = {}
    listed = {path for lines in data.lists for path in lines}
    folders = _folders(listed)
    for key, words in rules.items():
        new = tuple(_number(data, word) for word in words)
        if key in listed or key in folders:
            by_path[key] = new
        elif "/" in key or "." in key:
            raise InputError(
                f"{key!r} of the map is neither a path nor a folder of the lists; correct it or remove its line"
            )
        else:
            by_class[data.number(key)] = new
    count = max(data.size, *(number + 1 for new in (*by_path.values(), *by_class.values()) for number in new))
    if data.names and count > len(data.names):
        raise InputError(f"class {count - 1} of the map has no name in the class file; add one first")
    return Edited(_changed(data, mapped(by_path, by_class), count), list(data.names), [])


def _folders(paths: Collection[str]) -> set[str]:
    """Return all folders above paths, with their final slash."""
    homes = {path.rpartition("/")[0] + "/" for path in paths}
    return {home[: end + 1] for home in homes for end, letter in enumerate(home) if letter == "/"}


def _parts(title: str, paths: Collection[str], rules: Rules) -> dict[str, str]:
    """Return the part of each path that a map names. Raises InputError for a line that names no image, or several parts."""
    folders = _folders(paths)
    for key, words in rules.items():
        if key not in paths and key not in folders:
            raise InputError(
                f"{key!r} of the map is neither an image of {title} nor a folder/ of one; correct or remove its line"
            )
        if len(words) > 1:
            raise InputError(f"{key!r} has {len(words)} parts in the map; an image belongs to one")
    parts = sorted({words[0] for words in rules.values()})
    change = mapped({key: (parts.index(words[0]),) for key, words in rules.items()}, {})
    return {path: parts[number] for path in paths for number in change(path, ())}


def _number(data: DataSet, word: str) -> int:
    """Return a class that a map assigns, which may be a new one."""
    is_new = word.isdecimal() and int(word) < MOST_CLASSES and word not in data.names
    return int(word) if is_new else data.number(word)


def _changed(data: DataSet, change: Change, count: int) -> list[Lines]:
    return [relabelled(lines, change, data.width, count if data.width else 0) for lines in data.lists]
