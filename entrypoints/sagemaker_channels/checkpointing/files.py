"""The files of checkpoints: one of each rank. A checkpoint exists if it has all of them, as long as their names say.

    step-0000000500-20261126T190508123456/rank-3-of-8-1048576     step and time, rank, number of ranks, bytes

So nothing has to be written last: neither a process that is killed nor SageMaker, which copies the files of /opt/ml/checkpoints in
any order, also half-written ones, makes a checkpoint of what is incomplete. A name is never used twice, so files of two saves do
not mix.

A file is a sequence of records: the length of the data, its CRC-32, the data, and padding to the next multiple of 64 bytes. The
first record is the index, a state in torch's format; the others are tensors' bytes, in the index's order.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from struct import Struct
from typing import Any

from sagemaker_channels.checkpointing.place import Bucket, Folder
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.sources.silence import warn, warn_once

HEAD = Struct("<QQ")  # of a record: length and CRC-32
_ALIGNMENT = 64  # bytes; of each record
_SEED = 1  # of checksums: zeros are no record
_NAME = re.compile(r"step-(\d{10,})-\d{8}T\d{12}")
_FILE = re.compile(r"rank-(\d+)-of-([1-9]\d*)-(\d+)")


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
    for name, sizes in _by_name(place).items():
        if problem := _lacks(sizes):
            ignore(place, name, problem)
        else:
            yield Saved(name, _order(name)[0], sorted(filter(_FILE.fullmatch, sizes), key=_rank))


def ignore(place: Folder | Bucket, name: str, why: object) -> None:
    """Log why a checkpoint is not loaded."""
    warn_once(f"the checkpoint {place}/{name} is ignored: {why}")


def expire(place: Folder | Bucket, stored: list[str], keep: int, rank: int, ranks: int) -> None:
    """Remove a rank's files of what is older than the last `keep` checkpoints, also what an interrupted save left.

    Nothing that is newer than the last of `stored` is removed. The files of other numbers of ranks are divided. The log has what
    fails.

    Args:
        place: Where they are stored.
        stored: Checkpoints known to be complete: a host's own folder lacks the other hosts' files.
        keep: The number of complete checkpoints that remain.
        rank: This rank, or in a folder its number among the host's: each host may have a copy of every file.
        ranks: The number of these ranks.
    """
    try:
        found = {
            name: sizes for name, sizes in _by_name(place).items() if stored and _order(name) <= _order(stored[-1])
        }
        whole = [name for name, sizes in found.items() if name in stored or not _lacks(sizes)]
        for name in found.keys() - set(whole[:keep]):
            for file in found[name]:
                if _rank(file) % ranks == rank:
                    place.remove(f"{name}/{file}")
    except (ChannelError, OSError) as error:
        warn(f"old checkpoints remain in {place}: {error}")


def layout(lengths: Iterable[int]) -> list[tuple[int, int]]:
    """Return where the data of records of these lengths begin and end in a file."""
    found: list[tuple[int, int]] = []
    for length in lengths:
        start = (_aligned(found[-1][1]) if found else 0) + HEAD.size
        found.append((start, start + length))
    return found


def sign(memory: Any, size: int) -> None:
    """Write the checksums of a file's records into their heads."""
    view = memoryview(memory)
    start = 0
    while start < size:
        length, _ = HEAD.unpack_from(memory, start)
        end = start + HEAD.size + length
        HEAD.pack_into(memory, start, length, zlib.crc32(view[start + HEAD.size : end], _SEED))
        start = _aligned(end)


@contextmanager
def opened(place: Folder | Bucket, path: str) -> Generator[Callable[[int], bytearray], None, None]:
    """Open a file to read the records whose data begin somewhere. Raises FileNotFoundError.

    The function that it yields raises CorruptError if a record is not what was saved.
    """
    with place.open(path) as stream:

        def record(start: int) -> bytearray:
            stream.seek(start - HEAD.size)
            head = stream.read(HEAD.size)
            length, digest = HEAD.unpack(head) if len(head) == HEAD.size else (-1, 0)
            if 0 <= length <= int(path.rpartition("-")[2]) - start:
                data = bytearray(length)
                if stream.readinto(data) == length and zlib.crc32(data, _SEED) == digest:
                    return data
            file = path.rpartition("/")[2]
            raise CorruptError(f"{file} was changed or damaged: the bytes from {start} are not those that were saved")

        yield record


def _by_name(place: Folder | Bucket) -> dict[str, dict[str, int]]:
    """Return the checkpoints with their files and these files' sizes, the newest first."""
    found: dict[str, dict[str, int]] = {}
    for path, size in place.sizes().items():
        name, _, file = path.partition("/")
        if _NAME.fullmatch(name):
            found.setdefault(name, {})[file] = size
    return dict(sorted(found.items(), key=lambda item: _order(item[0]), reverse=True))


def _order(name: str) -> tuple[int, str]:
    return int(name.split("-")[1]), name


def _rank(file: str) -> int:
    """Return the rank whose file it is, or that removes it."""
    match = _FILE.fullmatch(file)
    return int(match[1]) if match else 0


def _lacks(sizes: dict[str, int]) -> str | None:
    """Return which file of a checkpoint is missing, or has another size than its name says; None if it is complete."""
    matches = {int(match[1]): match for match in map(_FILE.fullmatch, sizes) if match}
    for rank in range(int(next(iter(matches.values()))[2]) if matches else 1):
        if rank not in matches:
            return f"the file of rank {rank} is missing, so its save did not end"
        file, _, _, size = (matches[rank][number] for number in range(4))
        if sizes[file] != int(size):
            return f"{file} has {sizes[file]:,} of {int(size):,} bytes"
    return None


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT
