"""The classes of lines: read from their labels, counted, changed by rules, and written back.

A line's labels are its classes, one or several. If all lines have the same number of labels, at least two, and all are 0 or 1, the
list is one-hot, as the built-in image classification's `multi_label` needs: a column for each class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from launcher.errors import InputError, did_you_mean
from launcher.lists.list_files import Lines
from sagemaker_channels.samples.lst import Line

Classes = tuple[int, ...]
MOST_CLASSES = 1_000_000  # a larger label is an identifier or a measurement, and no class
IN_WORDS = f"whole numbers from 0 to {MOST_CLASSES - 1:,}"


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


def counts_of(lines: Lines, width: int) -> Counter[int]:
    """Return the number of lines of each class. Raises InputError if a label is not a class."""
    return Counter(number for line in lines.values() for number in classes_of(line, width))


@dataclass(frozen=True)
class Edited:
    """Lists after a change of their classes."""

    lists: list[Lines]
    names: list[str]  # of the classes; empty without a class file
    removed: list[str]  # the names, or numbers, of classes that have no line any more


def edit(
    lists: Sequence[Lines], names: Sequence[str], rules: Mapping[str, Sequence[str]], new: Sequence[str] = ()
) -> Edited:
    """Give images the classes of rules: a path's rule precedes its nearest folder's (`cat/`), and that precedes its class's.

    A class whose own rule leaves it without a line is removed, and the numbers after it close the gap. The classes of all `lists`
    have the same numbers. `rules` has the new classes, by name or number, by path, folder or present class; `new` has names to
    add after the highest class. Raises InputError if a label is not a class, or a rule names what does not exist.
    """
    width = columns(lists)
    size = max([width, *(number + 1 for lines in lists for number in counts_of(lines, width))])
    if names and size > len(names):
        raise InputError(
            f"the lists have {size} classes, and the class file has {len(names)}; correct classes.txt beside the lists, or pass"
            " another file by --classes"
        )
    known = [*(names or map(str, range(size))), *new]
    if twice := [name for name in new if known.count(name) > 1]:
        raise InputError(f"--new-class {twice[0]}: there is a class of this name; choose another name")
    by_place, by_class = _resolved(rules, lists, known)

    def changed(path: str, classes: Classes) -> Classes:
        own = next((by_place[place] for place in _places(path) if place in by_place), None) if by_place else None
        return own or tuple(number for each in classes for number in by_class.get(each, (each,)))

    found = [{path: changed(path, classes_of(line, width)) for path, line in lines.items()} for lines in lists]
    used = {number for each in found for classes in each.values() for number in classes}
    kept = [number for number in range(len(known)) if number in used or number not in by_class]
    if width and len(kept) < 2:
        raise InputError("a one-hot list needs at least two classes; keep one more")
    position, columns_now = {old: number for number, old in enumerate(kept)}, len(kept) if width else 0
    after = [
        {
            path: _with(lines[path], tuple(dict.fromkeys(position[old] for old in classes)), columns_now)
            for path, classes in each.items()
        }
        for lines, each in zip(lists, found, strict=True)
    ]
    removed = [name for number, name in enumerate(known) if number not in position]
    return Edited(after, [known[number] for number in kept] if names else [], removed)


def _with(line: Line, classes: Classes, width: int) -> Line:
    labels = as_labels(classes, width)
    return line if labels == line.labels else Line(line.index, labels, line.path)


def _places(path: str) -> Iterator[str]:
    """Yield a path, then the folders above it, the nearest first, with their final slash."""
    yield path
    while (end := path.rstrip("/").rfind("/")) >= 0:
        path = path[: end + 1]
        yield path


def _resolved(
    rules: Mapping[str, Sequence[str]], lists: Sequence[Lines], known: Sequence[str]
) -> tuple[dict[str, Classes], dict[int, Classes]]:
    """Return the numbers of the classes that rules assign, by path or folder, and by class."""
    listed = {path for lines in lists for path in lines}
    homes = {f"{path.rpartition('/')[0]}/" for path in listed}
    places = listed.union(*map(_places, homes)) if rules else set()

    def number_of(word: str) -> int:
        if word in known:
            return known.index(word)
        if word.isdecimal() and int(word) < len(known):
            return int(word)
        near = did_you_mean(word, known)
        raise InputError(
            f"class {word!r} does not exist{near}; expected a number from 0 to {len(known) - 1} or a name of the class file,"
            " and --new-class adds a class"
        )

    by_place: dict[str, Classes] = {}
    by_class: dict[int, Classes] = {}
    for key, words in rules.items():
        numbers = tuple(map(number_of, words))
        if key in places:
            by_place[key] = numbers
        elif key not in known and ("/" in key or "." in key):
            raise InputError(f"{key!r} is neither a path nor a folder/ of the lists; correct it or leave it out")
        else:
            by_class[number_of(key)] = numbers
    return by_place, by_class
