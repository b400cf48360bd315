"""Starting one FUSE program, waiting for its mount, and ending both.

The program is a child of `fuse_keeper`, a process that lives long enough after the launcher to clean up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.local.providers import fuse_keeper
from launcher.local.providers.fuse_keeper import is_mounted, unmount
from launcher.local.providers.mount_tools import MountTool, View, tool_environ

Which = Callable[[str], str | None]  # shutil.which, or a test's replacement that hides or replaces programs

_LIVE_SECONDS = 30.0  # from the program's start to a live mount
_LOOK_SECONDS = 0.02  # between two checks


class MountFailedError(Exception):
    """A program could not mount the folder; the message names the program and the reason."""


@contextmanager
def mounted(tool: MountTool, view: View, which: Which, on_warning: Callable[[str], None]) -> Iterator[None]:
    """Mount the view at its directory (absolute, without links in it); unmount it on leaving.

    Raises:
        MountFailedError: The program does not start, ends, or does not mount within half a minute.
    """
    log = view.scratch / f"{tool.program}-{view.directory.name}.log"
    program = [which(tool.program) or tool.program, *tool.options(view)]
    try:
        # A new session, so that Ctrl-C at the terminal reaches the job first, which reads from this mount until it ends.
        with (
            log.open("wb") as output,
            subprocess.Popen(  # leaving closes its standard input and waits for its end
                [sys.executable, "-I", "-S", fuse_keeper.__file__, str(view.directory), *program],
                env=tool_environ(tool, view, os.environ),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as keeper,
        ):
            _wait_until_live(tool.program, keeper, view.directory, log)
            yield
    finally:
        unmount(view.directory)  # in case the keeper was killed
        if is_mounted(view.directory):
            on_warning(f"{view.directory} is still mounted; unmount it by `fusermount3 -uz {view.directory}`")


def _wait_until_live(program: str, keeper: subprocess.Popen[bytes], directory: Path, log: Path) -> None:
    deadline = time.monotonic() + _LIVE_SECONDS
    while not is_mounted(directory):
        if keeper.poll() is not None:
            said = log.read_text(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "no output")
            raise MountFailedError(f"{program} ended with exit code {keeper.returncode} ({last}; log in {log})")
        if time.monotonic() > deadline:
            raise MountFailedError(f"{program} did not mount within {_LIVE_SECONDS:.0f} s (log in {log})")
        time.sleep(_LOOK_SECONDS)
