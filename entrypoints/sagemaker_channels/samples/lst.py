"""`.lst` index files with the labels of images, as MXNet's im2rec writes them and the built-in image classification reads them.

One line per image: `index<TAB>label[<TAB>label...]<TAB>relative path`. Lists are often edited by hand and stored apart from the
images, so the two drift apart: an image without a line, a line without an image, a malformed line and a repeated path are errors,
and no sample is silently left out.

The path of a whole object is its `__key__`; of a tar's group, the key with the extension of one of its fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sample import DATA, KEY, Sample


@dataclass(frozen=True, slots=True)
class Line:
    index: int
    labels: tuple[float, ...]
    path: str  # relative, with forward slashes; no leading ./


def read_lst(file: str | os.PathLike[str]) -> dict[str, Line]:
    """Return the lines of a list by path, in the file's order, without blank lines.

    Raises:
        ChannelError: A line is malformed or repeats a path, or the file cannot be read.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ChannelError(f"{file}: the list cannot be read: {error.strerror}") from error
    lines, problems = parse_lst(data, str(file))
    if problems:
        raise ChannelError(problems[0])
    return lines


def read_lists(folder: Path) -> dict[str, Line]:
    """Return the lines of all lists below a folder, by path. Raises ChannelError also for a path in two of them."""
    lines: dict[str, Line] = {}
    for file in sorted(folder.rglob("*.lst")):
        found = read_lst(file)
        if twice := lines.keys() & found.keys():
            raise ChannelError(f"{file}: {min(twice)!r} is in another list, too", remedy="remove one of its lines")
        lines |= found
    return lines


def parse_lst(data: bytes, name: str) -> tuple[dict[str, Line], list[str]]:
    """Return the well-formed lines of a list by path, in its order, and for each of the others a message.

    The messages begin with `name`.
    """
    lines: dict[str, Line] = {}
    problems = []
    for number, text in enumerate(data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").split("\n"), start=1):
        if not text.strip():
            continue
        try:
            line = _parse(text.rstrip("\r"))
        except ValueError as error:
            problems.append(f"{name}:{number}: {error}")
            continue
        if line.path in lines:
            problems.append(f"{name}:{number}: {line.path!r} is listed a second time; remove one of its lines")
        else:
            lines[line.path] = line
    return lines, problems


def write_lst(file: Path, lines: Iterable[Line]) -> None:
    """Write a list. Raises ValueError for a path that a line cannot hold, or a line without labels."""
    with file.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        for line in lines:
            path = line.path
            if not path or "\t" in path or "\n" in path or "\r" in path or not line.labels:
                raise ValueError(f"a line needs labels and a path without tabs and line ends: {line}")
            stream.write(f"{line.index}\t{_shown(line.labels)}\t{path}\n")


def line_of(sample: Sample, lines: Mapping[str, Line]) -> Line:
    """Return a sample's line. Raises ChannelError if there is none or more than one."""
    paths = sample_paths(sample)
    found = [lines[path] for path in paths if path in lines]
    if len(found) == 1:
        return found[0]
    if found:
        raise ChannelError(f"sample {sample[KEY]!r} has {len(found)} lines in the list: {', '.join(map(repr, paths))}")
    if not paths:
        raise ChannelError(
            "a sample without a key cannot be found in a list: a Pipe sends no keys",
            remedy="use tar shards or another input mode",
        )
    raise ChannelError(f"image {' or '.join(map(repr, paths))} has no line in the list")


def sample_paths(sample: Sample) -> list[str]:
    """Return the paths by which a list can name a sample: its key, or each member of a tar's group."""
    if KEY not in sample:
        return []
    key = _normal(sample[KEY])
    return [key if field == DATA else f"{key}.{field}" for field in sample if field != KEY]


def _parse(text: str) -> Line:
    """Return the line of a text. Raises ValueError if it is malformed."""
    index, _, rest = text.partition("\t")
    labels, _, path = rest.rpartition("\t")
    path = _normal(path.strip())
    if not labels or not path:
        raise ValueError(f"expected index, label(s) and path, separated by tabs, got {text!r}")
    try:
        return Line(int(index) if index.isdecimal() else int(float(index)), _labels(labels), path)
    except (ValueError, OverflowError):
        raise ValueError(f"index and labels must be numbers, got {text!r}") from None


@lru_cache(maxsize=1 << 16)  # few of a list's labels differ
def _labels(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split("\t")))


@lru_cache(maxsize=1 << 16)
def _shown(labels: tuple[float, ...]) -> str:
    """Return labels as a list has them: a class is a whole number, without a decimal point."""
    return "\t".join(str(int(x)) if float(x).is_integer() and abs(x) < 1e15 else repr(float(x)) for x in labels)


def _normal(path: str) -> str:
    """Remove the ./ that `tar -C images -cf shard.tar .` puts before every name."""
    return path.removeprefix("./")
