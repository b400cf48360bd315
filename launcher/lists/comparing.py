"""What differs between two lists, and what is wrong with some: both by path."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from launcher.lists.classes import IN_WORDS, as_classes, columns
from launcher.lists.list_files import Lines
from sagemaker_channels.samples.lst import Line

Changes = dict[str, Sequence[tuple[Line | None, Line | None]]]  # by kind: the old and the new line, None for no line
Problems = dict[str, Sequence[str]]  # what is wrong -> each line, path or class for which it is


def compare(old: Mapping[str, Line], new: Mapping[str, Line]) -> Changes:
    """Return the changes from `old` to `new`, by kind: `relabelled` has other labels, `renumbered` another row number."""
    both = [(line, new[path]) for path, line in old.items() if path in new and new[path] != line]
    return {
        "added": [(None, line) for path, line in new.items() if path not in old],
        "removed": [(line, None) for path, line in old.items() if path not in new],
        "relabelled": [pair for pair in both if pair[0].labels != pair[1].labels],
        "renumbered": [pair for pair in both if pair[0].labels == pair[1].labels],
    }


def counts(changes: Changes) -> dict[str, int]:
    return {kind: len(pairs) for kind, pairs in changes.items()}


def by_class(changes: Changes, old_width: int, new_width: int) -> dict[str, dict[str, int]]:
    """Return the number of lines that each class gained and lost; the widths are the `columns` of the lists."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for old, new in (pair for pairs in changes.values() for pair in pairs):
        before, after = (_names(old, old_width) if old else set(), _names(new, new_width) if new else set())
        for kind, names in (("gained", after - before), ("lost", before - after)):
            for name in names:
                found[name][kind] = found[name].get(kind, 0) + 1
    return {name: found[name] for name in sorted(found, key=lambda name: (len(name), name))}


def _names(line: Line, width: int) -> set[str]:
    """Return the classes that a line's labels name, or the labels if they are not classes."""
    classes = as_classes(line.labels, width)
    return set(map(str, classes)) if classes is not None else {f"{label:g}" for label in line.labels}


def problems_of(lists: Mapping[str, Lines], names: Sequence[str], file: str | None) -> Problems:
    """Return what can be wrong with well-formed lists of one data set, by their names, without their images.

    `names` are those of the classes, or nothing; `file` has them.
    """
    found: Problems = {
        "lists have no lines; `launch lst make` writes them": [name for name in lists if not lists[name]]
    }
    homes: dict[str, str] = {}
    for name, lines in lists.items():
        rows = Counter(line.index for line in lines.values())
        again = [f"{line.index} {line.path}" for line in lines.values() if rows[line.index] > 1]
        found[f"{name}: row numbers are repeated; they must be unique"] = again
        both = [f"{path} ({homes[path]})" for path in lines if path in homes]
        found[f"{name}: images are in another list, too; an image belongs to one list"] = both
        homes |= dict.fromkeys(lines, name)
    found["paths lead out of the images' folder; write them relative to it"] = [*filter(_leads_out, homes)]
    width = columns(lists.values())
    used: set[int] = set()
    wrong = []
    for line in (line for lines in lists.values() for line in lines.values()):
        if (classes := as_classes(line.labels, width)) is None:
            wrong.append(as_text(line))
        else:
            used.update(classes)
    found[f"labels are not {IN_WORDS}"] = wrong
    gaps = [str(number) for number in range(width or max(used, default=-1) + 1) if number not in used]
    why = "classes have no line, but higher ones do; `launch lst edit --set NUMBER=CLASS` closes such a gap"
    found[why] = gaps
    found[f"classes have no name in {file}"] = [str(number) for number in sorted(used) if number >= len(names) > 0]
    return found


def as_text(line: Line) -> str:
    return f"{line.path} {' '.join(f'{label:g}' for label in line.labels)}"


def _leads_out(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")


def problems_with_images(lists: Iterable[Lines], images: Iterable[str]) -> Problems:
    """Return the images without a line, and the lines without an image."""
    listed = {path for lines in lists for path in lines if not _leads_out(path)}
    there = set(images)
    lost = "lines have no image; paths are relative to --images"
    return {lost: sorted(listed - there), "images have no line": sorted(there - listed)}
