"""Files of a file system that is not on this machine, read in pieces by the threads of prefetch.py.

FastFile is a FUSE mount over S3, EFS is NFS, FSx is Lustre: a file costs some milliseconds before its first byte, and a
request can fail and succeed a moment later. A file is opened by its first fetch and closed when its end has been seen.
"""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2
# What passes: a connection that is made anew, a server that changes over. What else goes wrong stays wrong.
_PASSING = frozenset(
    (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ECONNRESET, errno.ECONNABORTED, errno.EREMOTEIO)
)
# Types in the kernel's mount table, without what follows a dot (`fuse.rclone`). fuseblk is a disk.
_REMOTE = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "virtiofs")
)
_OVERLAYS = frozenset(("fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.gvfsd-fuse"))  # FUSE, and local


class RemoteFile:
    """One file, read from front to back by one thread at a time; a Source."""

    __slots__ = ("_descriptor", "_path", "key", "ranges", "size")

    def __init__(self, path: str, key: str) -> None:
        self.key = key
        self.size: int | None = None  # asking for it is a request of its own
        self.ranges = False
        self._path = path
        self._descriptor = -1

    def fetch(self, start: int, count: int) -> bytes:
        """As Source's. What passes is tried again, from the byte that was reached; raises OSError."""
        pieces: list[bytes] = []
        reached = start
        end = start + count
        failures = 0
        while reached < end:
            try:
                if self._descriptor < 0:
                    # Not blocking: what has become a FIFO since the listing is an error, where opening would wait.
                    self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                piece = os.pread(self._descriptor, end - reached, reached)
            except OSError as error:
                failures += 1
                self.close()
                if failures == _ATTEMPTS or error.errno not in _PASSING:
                    raise
                time.sleep(failures * _PAUSE_SECONDS)
                continue
            if not piece:
                self.close()
                break
            pieces.append(piece)
            reached += len(piece)
        if (
            start == 0 and self._descriptor >= 0 and hasattr(os, "posix_fadvise")
        ):  # more follows: the kernel may go ahead too
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def length(self) -> int:
        """As Source's."""
        return os.stat(self._path).st_size  # noqa: PTH116 (a plain string)

    def close(self) -> None:
        """Closes the file; a further fetch opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_remote(path: Path) -> bool:
    """Whether a file under `path` is on another machine, or behind a program, as far as the kernel says."""
    kind = file_system(path)
    return kind.partition(".")[0] in _REMOTE and kind not in _OVERLAYS


def file_system(path: Path) -> str:
    """The type of the file system on which `path` lies, as in `/proc/self/mountinfo`; empty where that is not told."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return ""
    place = os.fsencode(os.path.realpath(path)) + b"/"
    found, longest = "", 0
    for line in table.splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) < 5:
            continue
        mount = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4]).rstrip(b"/") + b"/"
        if place.startswith(mount) and len(mount) >= longest:  # of two on one place the later lies on top
            found, longest = after.split(b" ")[0].decode(), len(mount)
    return found
