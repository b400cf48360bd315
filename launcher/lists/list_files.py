"""Lists, class files, maps and images: read from disk or S3 with the place of each error, and lists written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from launcher.aws.remote_objects import RemoteObjects
from launcher.aws.session import Account
from launcher.console import counted
from launcher.errors import InputError, RefusedError, has_folder, no_folder, unreadable
from launcher.s3.uri import S3Location, parse_s3_uri
from sagemaker_channels.samples.lst import Line, parse_lst, write_lst

Lines = dict[str, Line]  # by path, in the order of their list
ENDINGS = (".jpeg", ".jpg", ".png")  # im2rec's; the built-in image classification reads no others


def is_s3(place: str) -> bool:
    """Return whether a user means an object or a prefix, not a path."""
    return place.startswith(("s3://", "https://"))


def read_bytes(place: str, account: Callable[[], Account]) -> bytes:
    """Return the content of a file or an object. Raises RefusedError."""
    if is_s3(place):
        return b"".join(RemoteObjects(account()).read(parse_s3_uri(place)))
    try:
        return Path(place).read_bytes()
    except OSError as error:
        raise unreadable(place, error) from None


def read_list(place: str, account: Callable[[], Account]) -> Lines:
    """Return a list's lines. Raises InputError for the first malformed one, or if the list cannot be read."""
    lines, problems = parse_lst(read_bytes(place, account), place)
    if problems:
        more = f"; {len(problems) - 1:,} more: `launch lst check {place}` shows them" if problems[1:] else ""
        raise InputError(problems[0] + more)
    return lines


def _rows(place: str, account: Callable[[], Account]) -> list[str]:
    """Return the lines of a file, without the mark with which Windows begins UTF-8."""
    try:
        text = read_bytes(place, account).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    return [line.strip() for line in text.rstrip().splitlines()]


def read_names(place: str | None, account: Callable[[], Account]) -> list[str]:
    """Return the names of a class file, if there is one, class 0 first. Raises InputError for a line without a name."""
    names: dict[str, int] = {}
    for number, name in enumerate(_rows(place, account) if place else ()):
        where = f"{place}:{number + 1}: class {number}"
        if not name:
            raise InputError(f"{where} has no name, and classes have no gaps; write one, or remove the line")
        if names.setdefault(name, number) != number:
            raise InputError(f"{where}, {name!r}, is class {names[name]} as well; remove one of the lines")
    return list(names)


def read_map(file: str, account: Callable[[], Account]) -> list[tuple[str, str]]:
    """Return the key and the value of each line `key<TAB>value` of a map; several values are joined by commas."""
    found = []
    for number, line in enumerate(_rows(file, account), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if line and (len(cells) == 1 or "" in cells):
            raise InputError(f"{file}:{number}: expected a key and its value(s), separated by tabs, got {cells}")
        if line:
            found.append((cells[0], ",".join(cells[1:])))
    return found


def replace_files(lists: Mapping[Path, Lines], names: Mapping[Path, Sequence[str]]) -> None:
    """Write lists and class files beside the old ones, and replace those once all are written.

    Raises RefusedError if a file cannot be written.
    """
    parts: dict[Path, Path] = {}
    try:
        for file in (*lists, *names):
            target = Path(os.path.realpath(file))  # a link to a list remains one
            target.parent.mkdir(parents=True, exist_ok=True)
            part = parts[target] = target.with_name(f".{target.name}.part")
            if file in lists:
                write_lst(part, lists[file].values())
            else:
                part.write_text("".join(f"{name}\n" for name in names[file]), "utf-8", "surrogateescape")
            if target.exists():
                shutil.copymode(target, part)
        for target, part in parts.items():
            part.replace(target)
    except OSError as error:
        raise RefusedError(f"{file}: cannot be written: {error.strerror}; no file is changed") from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def find_images(place: str, endings: Collection[str], account: Callable[[], Account]) -> tuple[list[str], Counter[str]]:
    """Return the relative paths of the images below a folder or prefix, and the number of other files by ending.

    Raises InputError if there is no such folder, or no image in it, and RefusedError if AWS refuses the listing.
    """
    paths, skipped = [], Counter[str]()
    for path in _keys(place, account) if is_s3(place) else _files(place):
        ending = ending_of(path)
        if path.startswith(".") or "/." in path:
            skipped["hidden"] += 1
        elif ending in endings:
            paths.append(path)
        else:
            skipped[ending or "no ending"] += 1
    if not paths:
        others = f", only {described(skipped)}" if skipped else ""
        remedy = ", or pass --ending to `launch lst make`" if skipped else ""
        raise InputError(
            f"{place}: no images below it{others}; name the folder that holds the classes' folders{remedy}"
        )
    return paths, skipped


def ending_of(path: str) -> str:
    """Return `.jpg`, in lower case; empty for a name without a dot."""
    stem, _, ending = path.rpartition("/")[2].rpartition(".")
    return f".{ending.lower()}" if stem else ""


def described(skipped: Counter[str]) -> str:
    """Return `12 other files (.txt 10, hidden 2)`."""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in skipped.most_common(5))
    return f"{counted(skipped.total(), 'other file')} ({kinds})"


def _files(folder: str) -> Iterator[str]:
    from sagemaker_channels.sources.mounted import walk  # imports all readers, which `launch --help` need not wait for

    if not has_folder(folder):
        raise no_folder(folder)
    try:
        yield from map(os.fsdecode, walk(os.fsencode(os.path.realpath(folder))))
    except OSError as error:
        raise InputError(f"{error.filename!r}: cannot be read: {error.strerror}") from None


def _keys(uri: str, account: Callable[[], Account]) -> Iterator[str]:
    bucket, prefix = parse_s3_uri(uri)
    prefix = f"{prefix.rstrip('/')}/" if prefix else ""
    for key, *_ in RemoteObjects(account()).entries(S3Location(bucket, prefix)):
        if not key.endswith("/"):  # the console's markers of empty folders
            yield key[len(prefix) :]
