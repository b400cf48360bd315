"""Lists and class files on disk: read with the place of each error, and replaced whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.console import say, shown_path
from launcher.errors import InputError, RefusedError, did_you_mean_path
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels.job.process_identity import start_time
from sagemaker_channels.samples.lst import Line, parse_lst, write_lst

if TYPE_CHECKING:
    from launcher.aws.account import Account

Lines = dict[str, Line]  # by path, in the order of their list
Stamp = tuple[int, int, int] | None  # of a file's content; None for no file
_READY = ".launch-lst"  # the folder of new files that replace those beside it


def is_s3(place: str) -> bool:
    """Return whether a user means an object or a prefix, not a path."""
    return place.startswith(("s3://", "https://"))


@contextmanager
def named(uri: str) -> Iterator[None]:
    """Name the object or the prefix in what AWS refuses."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(f"{uri}: {error}") from None


def read_bytes(place: str, account: Callable[[], Account]) -> bytes:
    """Return the content of a file or an object. Raises InputError or AwsError."""
    if is_s3(place):
        bucket, key = parse_s3_uri(place)
        with named(place):
            content: bytes = account().attempt(
                "s3", "get_object", lambda client: client.get_object(Bucket=bucket, Key=key)["Body"].read()
            )
        return content
    complete(Path(place))
    try:
        return Path(place).read_bytes()
    except OSError as error:
        near = did_you_mean_path(place) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{place}: cannot be read: {error.strerror}{near}") from None


def read_list(place: str, account: Callable[[], Account]) -> Lines:
    """Return a list's lines. Raises InputError for the first malformed one, or if the list cannot be read."""
    lines, problems = parse_lst(read_bytes(place, account), place)
    if problems:
        more = f"; {len(problems) - 1:,} more: `launch lst check {place}` shows them" if problems[1:] else ""
        raise InputError(problems[0] + more)
    return lines


def read_names(place: str | None, account: Callable[[], Account]) -> list[str]:
    """Return the names of a class file, if there is one, the class 0 first. Raises InputError for a line without a name."""
    if place is None:
        return []
    names = [line.strip() for line in _text(place, account).rstrip().split("\n")]
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        where = f"{place}:{number + 1}: class {number}"
        if not name:
            raise InputError(f"{where} has no name, and classes have no gaps; write one, or remove the line")
        if "\t" in name:
            raise InputError(
                f"{where} is {name!r}; a line is one name, and its place is the class's number: remove the tab"
            )
        if first.setdefault(name, number) != number:
            raise InputError(f"{where}, {name!r}, is class {first[name]} as well; remove one of the lines")
    return names


def read_map(file: str, account: Callable[[], Account]) -> dict[str, tuple[str, ...]]:
    """Return what each line of a map assigns: `key<TAB>value[<TAB>value...]`. Raises InputError."""
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(_text(file, account).split("\n"), start=1):
        key, *values = (part.strip() for part in line.split("\t"))
        if not line.strip():
            continue
        if not key or not values or "" in values:
            raise InputError(f"{file}:{number}: expected a key and its value(s), separated by tabs, got {line!r}")
        if found.setdefault(key, tuple(values)) != tuple(values):
            raise InputError(f"{file}:{number}: {key!r} has another value above; remove one of the lines")
    if not found:
        raise InputError(f"{file}: is empty; write a key and its value in each line, separated by a tab")
    return found


def _text(place: str, account: Callable[[], Account]) -> str:
    """Return the text of a file or an object, without the mark with which Windows begins UTF-8."""
    try:
        return read_bytes(place, account).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def stamp(file: Path) -> Stamp:
    """Return what changes if another process writes the file, after completing an interrupted change of its folder."""
    complete(file)
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def replace_files(
    lists: Mapping[Path, Lines], names: Mapping[Path, Sequence[str]], stamps: Mapping[Path, Stamp]
) -> None:
    """Write lists and class files to a hidden folder beside them; once every one is on the disk, replace all.

    From when that folder is renamed to `_READY`, a change of one folder's files is certain: if the process is killed before it has
    moved all of them, `complete` moves the others. Ctrl-C has no effect in these milliseconds.

    Raises RefusedError if a file cannot be written, or has another `stamp` than when it was read; then all are as they were.
    """
    written: set[Path] = set()  # the folders of new files
    usual = signal.getsignal(signal.SIGINT)
    try:
        for file in (*lists, *names):
            target = Path(os.path.realpath(file))  # a link to a list remains one
            part = target.parent / f"{_READY}.{os.getpid()}-{start_time(os.getpid())}" / target.name
            with _refusals(file):
                part.parent.mkdir(parents=True, exist_ok=True)
                _remove_leftovers(target.parent)
                written.add(part.parent)
                if file in lists:
                    write_lst(part, lists[file].values())
                else:
                    part.write_text("".join(f"{name}\n" for name in names[file]), encoding="utf-8")
                if target.exists():
                    shutil.copymode(target, part)
                _sync(part)
                _sync(part.parent)
        for file, before in stamps.items():
            if stamp(file) != before:
                raise RefusedError(f"{file}: another process has changed it meanwhile; nothing is replaced, run again")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for folder in written:
            with _refusals(folder.parent):
                folder.rename(folder.with_name(_READY))
                _sync(folder.parent)
        for folder in written:
            _move(folder.with_name(_READY))
    finally:
        for folder in written:
            shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGINT, usual)


def complete(file: Path) -> None:
    """Complete a change of the files in a file's folder if it was interrupted after all of them had been written."""
    ready = Path(os.path.realpath(file)).with_name(_READY)
    if moved := _move(ready):
        say(f"{shown_path(ready.parent)}: completed an interrupted change of {', '.join(moved)}")


def _move(ready: Path) -> list[str]:
    """Move the files of a folder to the one above, where they replace others; return their names."""
    if not ready.is_dir():
        return []
    try:
        parts = sorted(ready.iterdir())
        for part in parts:
            with suppress(FileNotFoundError):  # another process completes the same change
                part.replace(ready.parent / part.name)
        _sync(ready.parent)
        with suppress(FileNotFoundError):
            ready.rmdir()
    except OSError as error:
        raise RefusedError(f"{ready}: holds new files, which cannot be moved out of it: {error.strerror}") from None
    return [part.name for part in parts]


def _remove_leftovers(folder: Path) -> None:
    """Remove the new files of processes that were killed before they had written all of theirs."""
    for part in folder.glob(f"{_READY}.*"):
        process, _, started = part.name.removeprefix(f"{_READY}.").partition("-")
        if process.isdigit() and started != start_time(int(process)):
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _refusals(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(f"{file}: cannot be written: {error.strerror}; no file is changed") from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
