"""One FUSE program from its start to a live mount, and back to nothing: no mount and no process stays behind.

Whether something is mounted is read from the kernel's table: touching a directory whose program is not ready blocks, and
one whose program has died fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.local.providers.mount_tools import MountTool, View, tool_environ

Which = Callable[[str], str | None]  # shutil.which, or a stand-in that hides or replaces programs

_LIVE_SECONDS = 30.0  # from the program's start to a live mount
_BUSY_SECONDS = 3.0  # for files that are still open in the mount to be closed
_RETRY_SECONDS = 0.2
_QUIT_SECONDS = 5.0  # from SIGTERM to SIGKILL
_LOOK_SECONDS = 0.02  # between two looks
_UNMOUNT = (["fusermount3", "-u"], ["fusermount", "-u"], ["umount"])
_DETACH = (["fusermount3", "-uz"], ["fusermount", "-uz"], ["umount", "-l"])  # although files are open in it


class MountFailedError(Exception):
    """The program could not show the folder here; the text says which program and why."""


@contextmanager
def mounted(tool: MountTool, view: View, which: Which, on_warning: Callable[[str], None]) -> Iterator[None]:
    """The view, mounted at its directory (absolute, without links in it) by the tool; unmounted on leaving.

    Raises MountFailedError where the program does not start, ends, or brings no mount within half a minute.
    """
    log = view.scratch / f"{tool.program}.log"
    # A session of its own: Ctrl-C at the terminal must reach the job first, which reads from this mount until it ends.
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                [*_dies_with_us(which), which(tool.program) or tool.program, *tool.options(view)],
                env=tool_environ(tool, view, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise MountFailedError(f"{tool.program} does not start ({error.strerror})") from error
    try:
        _wait_until_live(tool.program, process, view.directory, log)
        yield
    finally:
        _unmount(view.directory)
        _end(process)
        if is_mounted(view.directory):  # it was just being mounted, or stays busy
            _unmount(view.directory)
        if is_mounted(view.directory):
            on_warning(f"{view.directory} is still mounted; unmount it by `fusermount3 -uz {view.directory}`")


def is_mounted(directory: Path) -> bool:
    """Whether something is mounted at this directory (absolute, without links in it)."""
    wanted = os.fsencode(directory)
    for line in Path("/proc/self/mountinfo").read_bytes().split(b"\n"):
        fields = line.split(b" ")
        if len(fields) > 4 and re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4]) == wanted:
            return True
    return False


def _dies_with_us(which: Which) -> list[str]:
    """What makes a program end, by a SIGTERM on which it unmounts, when the launcher is killed outright."""
    setpriv = which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []


def _wait_until_live(program: str, process: subprocess.Popen[bytes], directory: Path, log: Path) -> None:
    deadline = time.monotonic() + _LIVE_SECONDS
    while not is_mounted(directory):
        if process.poll() is not None:
            said = log.read_text(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
            raise MountFailedError(f"{program} ended with exit code {process.returncode} ({last}; log in {log})")
        if time.monotonic() > deadline:
            raise MountFailedError(f"{program} brought no mount within {_LIVE_SECONDS:.0f} s (log in {log})")
        time.sleep(_LOOK_SECONDS)


def _unmount(directory: Path) -> None:
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


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_QUIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
