"""Keeps one FUSE program and takes its mount away: `python fuse_keeper.py DIRECTORY PROGRAM ARGUMENT...`.

A process of its own between the launcher and the program, whose standard input is a pipe that ends with the launcher, however
that ends. A program that is only told of that by a signal tries to unmount once, in the moment in which the job is being killed
that still has files open there, and leaves a dead mount behind.

Whether something is mounted is read from the kernel's table: touching a directory whose program is not ready blocks, and
one whose program has died fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

_BUSY_SECONDS = 3.0  # for files that are still open in the mount to be closed
_RETRY_SECONDS = 0.2
_QUIT_SECONDS = 5.0  # from SIGTERM to SIGKILL
_UNMOUNT = (["fusermount3", "-u"], ["fusermount", "-u"], ["umount"])
_DETACH = (["fusermount3", "-uz"], ["fusermount", "-uz"], ["umount", "-l"])  # although files are open in it


def keep(directory: Path, command: list[str]) -> int:
    """Runs the command, which mounts something at the directory, until it or our standard input ends; its exit code."""
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"it does not start: {error.strerror}\n")
        return 1
    end = threading.Thread(target=_end_with_launcher, args=(directory, program), daemon=True)
    end.start()
    code = program.wait()
    if is_mounted(
        directory
    ):  # it died, and the job shall see that rather than an empty directory; or it is being ended
        end.join()
        unmount(directory)
    return code if code >= 0 else 128 - code  # as a shell tells of signals


def _end_with_launcher(directory: Path, program: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 1):  # not by its buffer, whose lock would be in the way at the end of a program
        continue
    unmount(directory)
    program.terminate()
    try:
        program.wait(_QUIT_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()


def is_mounted(directory: Path) -> bool:
    """Whether something is mounted at this directory (absolute, without links in it)."""
    wanted = os.fsencode(directory)
    for line in Path("/proc/self/mountinfo").read_bytes().split(b"\n"):
        fields = line.split(b" ")
        if len(fields) > 4 and re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4]) == wanted:
            return True
    return False


def unmount(directory: Path) -> None:
    """Unmounts it, where it is mounted; after three seconds although files are open in it."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while is_mounted(directory):
        late = time.monotonic() > deadline
        for command in _DETACH if late else _UNMOUNT:
            if shutil.which(command[0]) and is_mounted(directory):
                subprocess.run([*command, directory], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if late:
            return
        if is_mounted(directory):
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:]))
