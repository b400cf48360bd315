"""What differs between two lists, and what is wrong with some: both by path."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from launcher.lists.classes import IN_WORDS, as_classes, columns
from launcher.lists.files import Lines
from sagemaker_channels.samples.lst import Line

CLOSE_GAPS = "`launch lst merge-classes` closes such a gap"
Problem = tuple[str, Sequence[str]]  # what is wrong, and each line, path or class for which it is


class Changes(NamedTuple):
    """What changed from one list to another, as pairs of the old and the new line; None for no line."""

    added: list[tuple[None, Line]]
    removed: list[tuple[Line, None]]
    relabelled: list[tuple[Line, Line]]  # other labels, the same path
    moved: list[tuple[Line, Line]]  # the same file name and labels in another folder, if both are the only ones
    renumbered: list[tuple[Line, Line]]  # another row number, the same path and labels

    def counts(self) -> dict[str, int]:
        """Return the number of changes of each kind."""
        return {kind: len(pairs) for kind, pairs in self._asdict().items()}

    def by_class(self, old_width: int, new_width: int) -> dict[str, dict[str, int]]:
        """Return the number of changes of each class; a relabelled line counts for the classes that it lost and gained.

        The widths are the `columns` of the lists.
        """
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for kind, pairs in self._asdict().items():
            alike = Counter((old and old.labels, new and new.labels) for old, new in pairs)
            for labels, count in alike.items():
                pairs_of = zip(labels, (old_width, new_width), strict=True)
                before, after = (set(keys(each, width)) if each else set() for each, width in pairs_of)
                for key in before ^ after if kind == "relabelled" else before | after:
                    counts[key][("gained", "lost")[key in before] if kind == "relabelled" else kind] += count
        order = (*self._fields, "gained", "lost")
        return {
            key: {kind: counts[key][kind] for kind in order if counts[key][kind]}
            for key in sorted(counts, key=_in_order)
        }


def keys(labels: tuple[float, ...], width: int) -> Iterable[str]:
    """Return the classes that labels name, or the labels if they are not classes."""
    classes = as_classes(labels, width)
    return map(str, classes) if classes is not None else (f"{label:g}" for label in labels)


def _in_order(key: str) -> tuple[bool, int, str]:
    return (not key.isdecimal(), int(key) if key.isdecimal() else 0, key)


def compare(old: Mapping[str, Line], new: Mapping[str, Line]) -> Changes:
    """Return the changes from `old` to `new`."""
    changes = Changes([], [], [], [], [])
    gone: defaultdict[tuple[str, tuple[float, ...]], list[Line]] = defaultdict(list)
    come: defaultdict[tuple[str, tuple[float, ...]], list[Line]] = defaultdict(list)
    for path, line in old.items():
        other = new.get(path)
        if other is line:
            continue
        if other is None:
            gone[path.rpartition("/")[2], line.labels].append(line)
        elif other.labels != line.labels:
            changes.relabelled.append((line, other))
        elif other.index != line.index:
            changes.renumbered.append((line, other))
    for path, line in new.items():
        if path not in old and gone:
            come[path.rpartition("/")[2], line.labels].append(line)
        elif path not in old:
            changes.added.append((None, line))
    for name, lines in gone.items():
        if len(lines) == len(come.get(name, ())) == 1:
            changes.moved.append((lines[0], come.pop(name)[0]))
        else:
            changes.removed.extend((line, None) for line in lines)
    changes.added.extend((None, line) for lines in come.values() for line in lines)
    return changes


def problems_of(lists: Mapping[str, Lines], names: Sequence[str], file: str | None) -> list[Problem]:
    """Return what is wrong with well-formed lists of one data set, by their names, without their images.

    `names` are those of the classes, or nothing; `file` has them.
    """
    found: list[Problem] = [
        ("lists have no lines; `launch lst make` writes them", [name for name in lists if not lists[name]])
    ]
    homes: dict[str, str] = {}
    for name, lines in lists.items():
        rows = Counter(line.index for line in lines.values())
        if len(rows) < len(lines):
            again = [f"{row} {line.path}" for row, line in _repeated(lines.values(), rows)]
            found.append((f"{name}: row numbers are repeated; they must be unique", again))
        if homes:
            both = [f"{path} ({homes[path]})" for path in lines if path in homes]
            found.append((f"{name}: images are in another list, too; an image belongs to one list", both))
        homes |= dict.fromkeys(lines, name)
    outside = [path for path in homes if _leads_out(path)]
    found.append(("paths lead out of the images' folder; write them relative to it", outside))
    width = columns(lists.values())
    used: set[int] = set()
    wrong = []
    for lines in lists.values():
        for path, line in lines.items():
            classes = as_classes(line.labels, width)
            if classes is None:
                wrong.append(f"{path} {' '.join(f'{label:g}' for label in line.labels)}")
            else:
                used.update(classes)
    found.append((f"labels are not {IN_WORDS}", wrong))
    found.append((f"classes have no line, but higher ones do; {CLOSE_GAPS}", gaps(used, width)))
    unnamed = [str(number) for number in sorted(used) if number >= len(names) > 0]
    found.append((f"classes have no name in {file}", unnamed))
    return [problem for problem in found if problem[1]]


def _leads_out(path: str) -> bool:
    return path.startswith("/") or (".." in path and ".." in path.split("/"))


def gaps(used: Collection[int], width: int) -> list[str]:
    """Return the classes that have no line although a higher one, or a column, has."""
    return [str(number) for number in range(width or max(used, default=-1) + 1) if number not in used]


def _repeated(lines: Iterable[Line], rows: Counter[int]) -> Iterable[tuple[int, Line]]:
    return ((line.index, line) for line in lines if rows[line.index] > 1)


def problems_with_images(lists: Iterable[Lines], images: Iterable[str]) -> list[Problem]:
    """Return the images without a line, and the lines without an image."""
    listed = {path for lines in lists for path in lines if not _leads_out(path)}
    there = set(images)
    lost, unlisted = sorted(listed - there), sorted(there - listed)
    hint = _folder_hint(lost, there) if lost and unlisted else ""
    found: list[Problem] = [(f"lines have no image{hint}", lost), ("images have no line", unlisted)]
    return [problem for problem in found if problem[1]]


def _folder_hint(lost: Sequence[str], images: set[str]) -> str:
    """Return a hint if the paths begin at another folder than the one searched, a frequent cause of many lost images."""
    folder, _, rest = lost[0].partition("/")
    if rest in images:
        return f"; the list's paths begin with {folder}/, so name the folder above"
    above = next((path.partition("/")[0] for path in images if path.partition("/")[2] == lost[0]), "")
    return f"; the list's paths begin inside {above}/, so name that folder" if above else ""
