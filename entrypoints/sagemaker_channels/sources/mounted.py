"""Channels that are a directory: File (a copy), FastFile (a lazy mount), EFS and FSx for Lustre (the file system itself).

Files are ordered by their relative POSIX paths as bytes, as in S3's listings, so the order is the same on every host and in every
input mode. The directory is walked while it is read, so an epoch over a million files begins immediately.

Opening a file takes microseconds on a disk, but milliseconds on FastFile, EFS and FSx. So threads prefetch the files of a remote
file system (prefetch.py); files on a disk are opened one by one, which is faster there.

Every file is data, whatever its name (hidden, `_SUCCESS`, `.crc`), since a Pipe and the connector also read these. Symbolic links
are followed, also out of the channel, unless they lead to a folder that is read under its own name or contains the link. Such a
link, a link to nothing, and anything that is neither a file nor a folder are skipped and logged.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from io import FileIO
from pathlib import Path

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.meter import awaited_read, counted_read, opened
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources.agreement import Agreement
from sagemaker_channels.sources.items import Keys
from sagemaker_channels.sources.prefetch import read_ahead
from sagemaker_channels.sources.remote_file import RemoteFile, is_remote
from sagemaker_channels.sources.silence import warn_once
from sagemaker_channels.sources.stream import Limits

# A file's size is unknown before it is read, so a piece is reserved for it: enough for all 64 threads.
_LIMITS = Limits(held_bytes=48 << 20, piece_bytes=768 << 10)
_LARGE_BYTES = 1 << 18  # of a file whose reads take so long that counting all of them costs nothing

# Errors of a link to nothing; other errors of a remote file system are raised.
_NOWHERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))

_log = logging.getLogger(__name__)


def open_objects(channel: Channel, paths: Iterable[str]) -> Generator[tuple[str | None, ByteStream], None, None]:
    """Yield the streams of these files of a channel, in this order, with prefetching if the file system is remote."""
    if not is_remote(channel.path):
        for path in paths:
            yield path, open_file(channel, path)
        return
    sources = (RemoteFile(os.path.join(channel.path, path), path) for path in paths)  # noqa: PTH118 (Path costs 5 us each)
    with closing(read_ahead(sources, _LIMITS, f"channel {channel.name!r}: {channel.path}")) as streams:
        for stream in streams:
            yield stream.key, stream


def pin_of(channel: Channel, path: str) -> tuple[int, int]:
    """Return the file's size; its times differ between copies."""
    return (channel.path / path).stat().st_size, 0


def key_of(channel: Channel, path: str) -> str:
    return path


class _SmallFile(FileIO):
    read, readall, readinto = (counted_read(method) for method in (FileIO.read, FileIO.readall, FileIO.readinto))


class _LargeFile(FileIO):
    read, readall, readinto = (awaited_read(method) for method in (FileIO.read, FileIO.readall, FileIO.readinto))


def open_file(channel: Channel, path: str) -> FileIO:
    """Open one file of the channel, unbuffered: formats have their own buffers. Raises ChannelError."""
    try:
        return _opened(os.path.join(channel.path, path))  # noqa: PTH118 (Path costs 5 us each)
    except OSError as error:
        raise ChannelError(f"cannot be read: {error}", channel=channel.name, object=path) from error


def _opened(path: str) -> FileIO:
    """Open a file. Raises OSError for one that became a FIFO after the listing, which would otherwise block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no longer a file", path)
    kind = _LargeFile if status.st_size >= _LARGE_BYTES else _SmallFile if opened(status.st_size) else FileIO
    return kind(descriptor)


def objects(channel: Channel, epoch: int | None = None) -> Keys:
    """Return the relative POSIX paths of a channel's files, sorted as bytes; the folder is walked as they are read.

    With ShardedByS3Key, a host can have no objects; this is only a warning on stderr. Otherwise the files of all hosts have to be
    the same within an epoch. Reading them raises ChannelError if the directory is missing or, at its end, has no file.
    """
    agreement = Agreement(f"channel {channel.name!r}", epoch, channel.named)
    return Keys(_paths(channel), None if _is_shard(channel) else agreement.check)


def has_folder(path: Path, channel: str) -> bool:
    """Return whether there is a folder. Raises ChannelError if that cannot be seen, which Path.is_dir hides since Python 3.14."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if error.errno in _NOWHERE:
            return False
        remedy = f"{'give this user access to it, or ' * isinstance(error, PermissionError)}use another path"
        raise ChannelError(f"{path} cannot be read: {error.strerror}", channel=channel, remedy=remedy) from error


def _paths(channel: Channel) -> Iterator[str]:
    if has_folder(channel.path, channel.name):
        empty = True
        for path in walk(os.fsencode(os.path.realpath(channel.path))):
            empty = False
            yield os.fsdecode(path)
        if not empty:
            return
    elif channel.path.exists() or not _is_shard(channel):
        raise ChannelError(
            f"{channel.path} is not a directory, which input mode {channel.mode} needs",
            channel=channel.name,
            remedy="correct the path" if channel.is_folder else "check that SageMaker delivered the channel",
        )
    found = f"no file in {channel.path}"
    if not _is_shard(channel):
        folder = ", which for FastFile names a folder and ends with '/'" if channel.mode == "FastFile" else ""
        what = "the path" if channel.is_folder else f"the channel's s3_uri{folder}, or directory_path"
        remedy = f"correct {what} (the log lists what was skipped)"
        raise ChannelError(f"{found}, nor below it", channel=channel.name, remedy=remedy)
    warn_once(
        f"channel {channel.name!r}: {found} on this host; ShardedByS3Key assigns it none if there are fewer objects than hosts;"
        " write more objects"
    )


def _is_shard(channel: Channel) -> bool:
    """Return whether the folder has other files on each host."""
    return channel.distribution == contract.SHARDED and channel.hosts != 1


def walk(root: bytes) -> Iterator[bytes]:
    """Yield the relative paths of all files, sorted."""
    tops: tuple[bytes, ...] = (root,)
    walks = [(b"", *_names(root, tops), tops)]
    while walks:
        directory, names, links, tops = walks[-1]
        name = next(names, None)
        if name is None:
            walks.pop()
        elif name.endswith(b"/"):
            tops = (*tops, links[name]) if name in links else tops
            path = os.path.join(root, directory, name)  # noqa: PTH118 (bytes)
            walks.append((directory + name, *_names(path, tops), tops))
        else:
            yield directory + name


def top_names(channel: Channel) -> Iterator[str]:
    """Yield the names of the files and folders in a channel's folder, folders with a final slash; nothing else is read.

    Raises ChannelError if the directory is missing or empty, as `objects` does.
    """
    root, is_there = os.fsencode(os.path.realpath(channel.path)), has_folder(channel.path, channel.name)
    names = [os.fsdecode(name) for name in _names(root, (root,))[0]] if is_there else []
    yield from names or _paths(channel)


def _names(directory: bytes, tops: tuple[bytes, ...]) -> tuple[Iterator[bytes], dict[bytes, bytes]]:
    """Return a directory's sorted files and directories, these with a final slash, and the targets of directory links.

    The slash makes the order of all paths correct. `tops` are the channel's root and the targets of the links on the way here.
    """
    names = []
    links = {}
    try:
        found = os.scandir(directory)
    except OSError as error:
        error.filename = os.fsdecode(directory)  # as users write it, not b'...'
        raise
    with found as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name + b"/")
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            elif (mode := _mode(entry)) is None:
                continue
            elif stat.S_ISREG(mode):
                names.append(entry.name)
            elif not stat.S_ISDIR(mode):
                _log_skipped(entry, "neither a file nor a directory")
            elif (target := _target(entry, tops)) is not None:
                names.append(entry.name + b"/")
                links[names[-1]] = target
    return iter(sorted(names)), links


def _mode(entry: os.DirEntry[bytes]) -> int | None:
    """Return the mode of a link's target, or of a special file; None, and log it, if the target does not exist."""
    try:
        return entry.stat().st_mode
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        _log_skipped(entry, f"a link to a missing target, {os.fsdecode(os.readlink(entry.path))}")  # noqa: PTH115 (bytes)
        return None


def _target(entry: os.DirEntry[bytes], tops: tuple[bytes, ...]) -> bytes | None:
    """Return the directory that a link leads to; None, and log it, if its files are read under another path."""
    target = os.path.realpath(entry.path)
    if any(_holds(top, target) or _holds(target, top) for top in tops):
        _log_skipped(entry, f"a link to {os.fsdecode(target)}, which is read under its own name or contains it")
        return None
    return target


def _holds(folder: bytes, path: bytes) -> bool:
    return (path + b"/").startswith(folder.rstrip(b"/") + b"/")


def _log_skipped(entry: os.DirEntry[bytes], reason: str) -> None:
    _log.warning("%s is skipped: %s", os.fsdecode(entry.path), reason)
