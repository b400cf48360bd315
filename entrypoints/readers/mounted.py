"""Channels that are a directory: File (a copy), FastFile (a lazy mount), EFS and FSx for Lustre (the file system itself).

Files come in the order of their relative POSIX paths as bytes, which is also the order of S3's listings: every rank, every
host and every way of arriving agree on it. The directory is walked as it is read, so that an epoch over a million
files begins at once and needs no list of them.

What opening a file costs differs by a thousand: microseconds on a disk, milliseconds on FastFile, EFS and FSx, where each
file is a request to somewhere else. So on a file system that is not this machine's own, files are read ahead by threads
(prefetch.py); on a disk they are opened one by one, which is faster there.

Every file is data, whatever its name: hidden ones, `_SUCCESS`, `.crc`. A Pipe and the connector bring these too, and the
samples are to be the same; an empty file gives no sample where its format has records.

Symbolic links are followed, out of the channel too: file systems that people share are full of them. A link to a folder
that is read under its own name already, or that holds the link, is not: no loop, and nothing twice. That, a link to nothing
and what is neither a file nor a folder are passed over, and said in the log.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from io import FileIO

from entrypoints import contract
from entrypoints.errors import ChannelError
from entrypoints.fetching.prefetch import read_ahead
from entrypoints.fetching.schedule import Limits
from entrypoints.fetching.silence import warn_once
from entrypoints.job.environment import Channel
from entrypoints.order.sharding import Share
from entrypoints.readers.remote_file import RemoteFile, is_remote
from entrypoints.sample import ByteStream

JOINED = False

# A file's size is not known before it is read, and a piece is kept free for it: so that all 64 threads have one.
_LIMITS = Limits(held_bytes=48 << 20, piece_bytes=768 << 10)

# What a link that leads nowhere is refused with; other errors of a far file system are errors.
_NOWHERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))

_log = logging.getLogger(__name__)


def open_streams(channel: Channel, epoch: int, share: Share) -> Iterator[tuple[str | None, ByteStream]]:
    """The files of a channel's directory; every epoch the same."""
    return open_objects(channel, share.of(objects(channel)))


def open_objects(channel: Channel, paths: Iterable[str]) -> Generator[tuple[str | None, ByteStream], None, None]:
    """The streams of a channel's files in the order in which they are given, read ahead where files are far away."""
    if not is_remote(channel.path):
        for path in paths:
            yield path, open_file(channel, path)
        return
    sources = (RemoteFile(os.path.join(channel.path, path), path) for path in paths)  # noqa: PTH118 (Path costs 5 us each)
    with closing(read_ahead(sources, _LIMITS, f"channel {channel.name!r}: {channel.path}")) as streams:
        for stream in streams:
            yield stream.key, stream


def key_of(channel: Channel, path: str) -> str:
    """The key that a sample of this file bears."""
    return path


def open_file(channel: Channel, path: str) -> FileIO:
    """One file of the channel, unbuffered: formats read big pieces into a buffer of their own. Raises ChannelError."""
    try:
        return FileIO(os.path.join(channel.path, path), opener=_opened)  # noqa: PTH118 (Path costs 5 us each)
    except OSError as error:
        raise ChannelError(f"channel {channel.name!r} cannot be read at {path!r}: {error}") from error


def _opened(path: str, flags: int) -> int:
    """A descriptor of a file; of what has become a FIFO since the listing, an error at once, where opening would wait."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file any more", path)
    return descriptor


def objects(channel: Channel) -> Iterator[str]:
    """The relative POSIX paths of a channel's files, sorted as bytes.

    Raises ChannelError where the directory is missing and, at its end, where there was no file. A host that shares a
    channel with others by ShardedByS3Key can be left without objects: that is told of on stderr.
    """
    if channel.path.is_dir():
        empty = True
        for path in _walk(os.fsencode(os.path.realpath(channel.path))):
            empty = False
            yield os.fsdecode(path)
        if not empty:
            return
    elif channel.path.exists() or not _may_be_empty(channel):
        raise ChannelError(
            f"channel {channel.name!r}: {channel.path} is not a directory; its input mode is {channel.mode}, which "
            "needs one: look whether the job's channel was delivered"
        )
    said = f"channel {channel.name!r}: no file in {channel.path}"
    if not _may_be_empty(channel):
        folder = ", which for FastFile names a folder and ends with '/'" if channel.mode == "FastFile" else ""
        raise ChannelError(
            f"{said}, nor below it; correct the channel's s3_uri{folder}, or directory_path (the log says what was passed over)"
        )
    warn_once(f"{said} on this host; ShardedByS3Key gives it none where there are fewer objects than hosts: write more")


def _may_be_empty(channel: Channel) -> bool:
    return channel.distribution == contract.SHARDED and channel.hosts != 1


def _walk(root: bytes) -> Iterator[bytes]:
    """The relative paths of all files, sorted."""
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


def _names(directory: bytes, tops: tuple[bytes, ...]) -> tuple[Iterator[bytes], dict[bytes, bytes]]:
    """A directory's files and, with a slash at the end, its directories; so sorted, all paths come out sorted.

    Of directories that are links, also where they lead. `tops` are the channel's root and where the links led by which one
    came here.
    """
    names = []
    links = {}
    with os.scandir(directory) as entries:
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
                _pass_over(entry, "neither a file nor a directory")
            elif (target := _target(entry, tops)) is not None:
                names.append(entry.name + b"/")
                links[names[-1]] = target
    return iter(sorted(names)), links


def _mode(entry: os.DirEntry[bytes]) -> int | None:
    """What a link leads to, or something unusual is, as stat tells it; None where it leads nowhere."""
    try:
        return entry.stat().st_mode
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        _pass_over(entry, f"a link to what is not here, {os.fsdecode(os.readlink(entry.path))}")  # noqa: PTH115 (bytes)
        return None


def _target(entry: os.DirEntry[bytes], tops: tuple[bytes, ...]) -> bytes | None:
    """The directory that a link leads to, where its files do not come already on the way that led here."""
    target = os.path.realpath(entry.path)
    for top in tops:
        if _holds(top, target):
            _pass_over(entry, f"a link to {os.fsdecode(target)}, which is read under its own name")
            return None
        if _holds(target, top):
            _pass_over(entry, f"a link to {os.fsdecode(target)}, in which it lies itself")
            return None
    return target


def _holds(folder: bytes, path: bytes) -> bool:
    return (path + b"/").startswith(folder.rstrip(b"/") + b"/")


def _pass_over(entry: os.DirEntry[bytes], reason: str) -> None:
    _log.warning("%s is passed over: %s", os.fsdecode(entry.path), reason)
