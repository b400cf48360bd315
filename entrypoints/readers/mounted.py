"""Channels that are a directory: File (a copy), FastFile (a lazy mount), EFS and FSx for Lustre (the file system itself).

Files come in the order of their relative POSIX paths as bytes, which is also the order of S3's listings: every rank, every
host and every way of arriving agree on it. The directory is walked as it is read, so that an epoch over a million
files begins at once and needs no list of them.

What opening a file costs differs by a thousand: microseconds on a disk, milliseconds on FastFile, EFS and FSx, where each
file is a request to somewhere else. So on a file system that is not this machine's own, files are read ahead by threads
(prefetch.py); on a disk they are opened one by one, which is faster there.

Hidden files are data too. Directories are not followed through symbolic links, and a link to a file is read only if the
file lies in the channel; what is passed over is said in the log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

from entrypoints import contract
from entrypoints.environment import Channel
from entrypoints.errors import ChannelError
from entrypoints.prefetch import read_ahead
from entrypoints.prefetch_schedule import Limits
from entrypoints.readers.remote_file import RemoteFile, is_remote
from entrypoints.sample import ByteStream
from entrypoints.sharding import Share

JOINED = False

# A file's size is not known before it is read, and a piece is kept free for it: so that all 64 threads have one.
_LIMITS = Limits(held_bytes=48 << 20, piece_bytes=768 << 10)

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


def open_file(channel: Channel, path: str) -> ByteStream:
    """One file of the channel, unbuffered: formats read big pieces into a buffer of their own."""
    return (channel.path / path).open("rb", buffering=0)


def objects(channel: Channel) -> Iterator[str]:
    """The relative POSIX paths of a channel's files, sorted as bytes.

    Raises ChannelError where the directory is missing; not under ShardedByS3Key, where a host can be left without objects.
    """
    if not channel.path.is_dir():
        if channel.distribution == contract.SHARDED and not channel.path.exists():
            return
        raise ChannelError(
            f"channel {channel.name!r}: {channel.path} is not a directory; its input mode is {channel.mode}, which "
            "needs one: look whether the job's channel was delivered"
        )
    root = os.fsencode(os.path.realpath(channel.path))
    walks = [(b"", _names(root, root))]
    while walks:
        directory, names = walks[-1]
        name = next(names, None)
        if name is None:
            walks.pop()
        elif name.endswith(b"/"):
            walks.append((directory + name, _names(os.path.join(root, directory, name), root)))  # noqa: PTH118 (bytes)
        else:
            yield os.fsdecode(directory + name)


def _names(directory: bytes, root: bytes) -> Iterator[bytes]:
    """A directory's files and, with a slash at the end, its directories; so sorted, all paths come out sorted."""
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name + b"/")
            elif _is_data(entry, root):
                names.append(entry.name)
    return iter(sorted(names))


def _is_data(entry: os.DirEntry[bytes], root: bytes) -> bool:
    if entry.is_file(follow_symlinks=False):
        return True
    if entry.is_symlink():
        target = os.path.realpath(entry.path)
        if target.startswith(root + b"/") and os.path.isfile(target):  # noqa: PTH113 (bytes)
            return True
        reason = "a link to what is no file of this channel"
    else:
        reason = "neither a file nor a directory"
    _log.warning("%s is passed over: %s", os.fsdecode(entry.path), reason)
    return False
