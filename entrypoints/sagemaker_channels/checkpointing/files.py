"""The files of checkpoints: one of each rank. A checkpoint exists if it has all of them, as their names say.

    step-0000000500-20261126T190508123456/rank-3-of-8.zip     step and time, rank, number of ranks

So nothing has to be written last: neither a process that is killed nor SageMaker, which copies the files of /opt/ml/checkpoints in
any order, makes a checkpoint of what is incomplete. A name is never used twice, so files of two saves do not mix.

A file is a zip archive. Each chunk of a tensor is a numbered record with a CRC-32, which zipfile checks, and one more record is the
index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from sagemaker_channels.checkpointing.place import Bucket, Folder
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.sources.silence import warn, warn_once

INDEX = "index.pt"
_PIECE_BYTES = 8 << 20  # the S3 client copies each piece
_NAME = re.compile(r"step-(\d{10,})-\d{8}T\d{12}")
_FILE = re.compile(r"rank-(\d+)-of-([1-9]\d*)\.zip")


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint, with its files in the order of their ranks."""

    name: str
    step: int
    files: list[str]


def new_name(step: int) -> str:
    """Return the name of a new checkpoint; names sort by step, and then by time."""
    return f"step-{step:010}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S%f}"


def complete(place: Folder | Bucket) -> Iterator[Saved]:
    """Yield the complete checkpoints, the newest first. The log names each incomplete one before them and what it lacks."""
    for name, files in _by_name(place).items():
        if (missing := _missing(files)) is not None:
            ignore(place, name, f"the file of rank {missing} is missing, so its save did not end")
        else:
            yield Saved(name, _order(name)[0], list(_by_rank(files).values()))


def ignore(place: Folder | Bucket, name: str, why: object) -> None:
    warn_once(f"the checkpoint {place}/{name} is ignored: {why}")


def expire(place: Folder | Bucket, stored: list[str], keep: int) -> None:
    """Remove what is older than the last `keep` checkpoints, also what an interrupted save left. The log has what fails.

    Nothing that is newer than the last of `stored` is removed: checkpoints known to be complete, also in a host's own folder, which
    lacks the other hosts' files.
    """
    try:
        found = {
            name: files for name, files in _by_name(place).items() if stored and _order(name) <= _order(stored[-1])
        }
        whole = [name for name, files in found.items() if name in stored or _missing(files) is None]
        for name in found.keys() - set(whole[:keep]):
            for file in found[name]:
                place.remove(f"{name}/{file}")
    except (ChannelError, OSError) as error:
        warn(f"old checkpoints remain in {place}: {error}")


def write(stream: Any, records: Iterable[tuple[str, int, int]], memory: memoryview) -> None:
    """Write the records of a file: their names, and where their bytes begin and end in the memory."""
    with ZipFile(stream, "w") as archive:
        for name, start, end in records:
            about = ZipInfo(name)
            about.file_size = end - start
            with archive.open(about, "w") as record:
                for at in range(start, end, _PIECE_BYTES):
                    record.write(memory[at : min(at + _PIECE_BYTES, end)])


def read(place: Folder | Bucket, path: str, names: Iterable[str]) -> Iterator[bytearray]:
    """Yield records of a file. Raises FileNotFoundError, and CorruptError if one is not what was saved."""
    try:
        with place.open(path) as stream, ZipFile(stream) as archive:
            for name in names:
                data = bytearray(archive.getinfo(name).file_size)
                with archive.open(name) as record:
                    record.readinto(data)  # type: ignore[attr-defined]
                yield data
    except (BadZipFile, EOFError, KeyError, NotImplementedError, ValueError) as error:
        raise CorruptError(f"{path.rpartition('/')[2]} was changed or damaged: {error}") from error


def _by_name(place: Folder | Bucket) -> dict[str, list[str]]:
    """Return the checkpoints with their files, the newest first."""
    found: dict[str, list[str]] = {}
    for path in place.sizes():
        name, _, file = path.partition("/")
        if _NAME.fullmatch(name):
            found.setdefault(name, []).append(file)
    return {name: found[name] for name in sorted(found, key=_order, reverse=True)}


def _order(name: str) -> tuple[int, str]:
    return int(name.split("-")[1]), name


def _by_rank(files: Iterable[str]) -> dict[int, str]:
    """Return the ranks' files, in their order, without unfinished ones."""
    return dict(sorted((int(match[1]), match[0]) for match in map(_FILE.fullmatch, files) if match))


def _missing(files: Iterable[str]) -> int | None:
    """Return the first rank whose file a checkpoint lacks; None if it is complete."""
    there = _by_rank(files)
    ranks = int(_FILE.fullmatch(there[min(there)])[2]) if there else 1  # type: ignore[index]
    return next((rank for rank in range(ranks) if rank not in there), None)
