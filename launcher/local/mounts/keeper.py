"""Running one FUSE program and removing its mount: `python keeper.py DIRECTORY PROGRAM ARGUMENT...`.

This process is between ours and the program. A byte in its standard input, or the end of it, ends the mount; it is a pipe that ends
with our process, however that ends. A signal alone would not do: the program would try to unmount once, while the job that is being
killed still has files open, and would leave a dead mount.

Mounts are looked up in the kernel's table: accessing a directory blocks while its program is not ready, and fails once it has died.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_BUSY_SECONDS = 3.0  # to wait until the job closes its files in the mount
_RETRY_SECONDS = 0.2
_QUIT_SECONDS = 5.0  # from SIGTERM to SIGKILL
_UNMOUNT = (["fusermount3", "-u"], ["fusermount", "-u"], ["umount"])
_DETACH = (["fusermount3", "-uz"], ["fusermount", "-uz"], ["umount", "-l"])  # even while files are open


def keep(directory: Path, command: list[str]) -> int:
    """Run a command that mounts something at the directory until it or our standard input ends; return its exit code."""
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"cannot be started: {error.strerror}\n")  # noqa: TID251 - it runs without our packages
        return 1
    end = threading.Thread(target=_end_with_input, args=(directory, program), daemon=True)
    end.start()
    code = program.wait()
    if is_mounted(directory):  # it died, and the job must see that, not an empty directory; or it is being ended
        end.join()
        unmount(directory)
    return code if code >= 0 else 128 - code  # a signal, as a shell reports it


def _end_with_input(directory: Path, program: subprocess.Popen[bytes]) -> None:
    os.read(sys.stdin.fileno(), 1)  # unbuffered: the lock of a buffer would block the interpreter's exit
    unmount(directory)
    program.terminate()
    try:
        program.wait(_QUIT_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()


def is_mounted(directory: Path) -> bool:
    """Return whether the directory (absolute, without links in it) is a mount point."""
    wanted = os.fsencode(directory)
    for line in Path("/proc/self/mountinfo").read_bytes().split(b"\n"):
        fields = line.split(b" ")
        if len(fields) > 4 and re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4]) == wanted:
            return True
    return False


def unmount(directory: Path) -> None:
    """Unmount the directory if it is a mount point; after three seconds, even while files are open in it."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while is_mounted(directory):
        late = time.monotonic() > deadline
        for command in _DETACH if late else _UNMOUNT:
            if shutil.which(command[0]) and is_mounted(directory):
                # It blocks if the program answers nothing; once the program has ended, the next attempt does not.
                with suppress(subprocess.TimeoutExpired):
                    subprocess.run(
                        [*command, directory],
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        check=False,
                        timeout=_BUSY_SECONDS,
                    )
        if late:
            return
        if is_mounted(directory):
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:]))
