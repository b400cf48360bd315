"""Files of a remote file system, read in pieces by the threads of prefetch.py.

FastFile is a FUSE mount over S3, EFS is NFS, FSx is Lustre: the first byte of a file takes milliseconds, and a failed request can
succeed a moment later. A file is opened by its first fetch and closed at its end.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2
# Errors worth a retry: a new connection or a failover may fix them.
_TRANSIENT = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ECONNRESET, errno.ECONNABORTED}
if sys.platform == "linux":
    _TRANSIENT.add(errno.EREMOTEIO)
# Types in the kernel's mount table, up to a dot (`fuse.rclone`). fuseblk is a disk.
_REMOTE = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "virtiofs")
)
_OVERLAYS = frozenset(("fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.gvfsd-fuse"))  # FUSE, and local


class RemoteFile:
    """One file, read from front to back by one thread at a time (Fetchable)."""

    __slots__ = ("_descriptor", "_path", "key")
    size = None  # Asking for it is a request of its own.
    ranges = False

    def __init__(self, path: str, key: str) -> None:
        self.key = key
        self._path = path
        self._descriptor = -1

    def fetch(self, start: int, count: int) -> bytes:
        """Return bytes, and retry a transient error from the byte that was reached. Raises OSError."""
        pieces: list[bytes] = []
        reached, end, failures = start, start + count, 0
        while reached < end:
            try:
                if self._descriptor < 0:
                    # Not blocking, since a file that became a FIFO after the listing would block.
                    self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                piece = os.pread(self._descriptor, end - reached, reached)
            except OSError as error:
                failures += 1
                self.close()
                if failures == _ATTEMPTS or error.errno not in _TRANSIENT:
                    raise
                time.sleep(failures * _PAUSE_SECONDS)
                continue
            if not piece:
                self.close()
                break
            pieces.append(piece)
            reached += len(piece)
        if start == 0 and self._descriptor >= 0 and sys.platform == "linux":
            # More follows: the kernel may prefetch, too.
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def length(self) -> int:
        return os.stat(self._path).st_size  # noqa: PTH116 (a plain string)

    def close(self) -> None:
        """Close the file; the next fetch opens it again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):  # a mount that ends meanwhile answers so, and nothing was written
                os.close(descriptor)

    __del__ = close


def is_remote(path: Path) -> bool:
    """Return whether the kernel's mount table says that `path` is on another machine, or served by a program (FUSE)."""
    kind = file_system(path)
    return kind.partition(".")[0] in _REMOTE and kind not in _OVERLAYS


def file_system(path: Path) -> str:
    """Return the type of the file system of `path`, as in `/proc/self/mountinfo`; empty if unknown."""
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
        if place.startswith(mount) and len(mount) >= longest:  # of two mounts at one path, the later hides the other
            found, longest = after.split(b" ")[0].decode(), len(mount)
    return found
