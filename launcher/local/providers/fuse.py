"""One FUSE program from its start to a live mount, and back to nothing: no mount and no process stays behind.

The program runs below a process that outlives the launcher by as much as it takes to clean up (`fuse_keeper`).
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

Which = Callable[[str], str | None]  # shutil.which, or a stand-in that hides or replaces programs

_LIVE_SECONDS = 30.0  # from the program's start to a live mount
_LOOK_SECONDS = 0.02  # between two looks


class MountFailedError(Exception):
    """The program could not show the folder here; the text says which program and why."""


@contextmanager
def mounted(tool: MountTool, view: View, which: Which, on_warning: Callable[[str], None]) -> Iterator[None]:
    """The view, mounted at its directory (absolute, without links in it) by the tool; unmounted on leaving.

    Raises MountFailedError where the program does not start, ends, or brings no mount within half a minute.
    """
    log = view.scratch / f"{tool.program}-{view.directory.name}.log"
    program = [which(tool.program) or tool.program, *tool.options(view)]
    try:
        # A session of its own: Ctrl-C at the terminal must reach the job first, which reads from this mount until it ends.
        with (
            log.open("wb") as output,
            subprocess.Popen(  # on leaving, its standard input is closed, and its end waited for
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
        unmount(view.directory)  # where the keeper was killed
        if is_mounted(view.directory):
            on_warning(f"{view.directory} is still mounted; unmount it by `fusermount3 -uz {view.directory}`")


def _wait_until_live(program: str, keeper: subprocess.Popen[bytes], directory: Path, log: Path) -> None:
    deadline = time.monotonic() + _LIVE_SECONDS
    while not is_mounted(directory):
        if keeper.poll() is not None:
            said = log.read_text(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
            raise MountFailedError(f"{program} ended with exit code {keeper.returncode} ({last}; log in {log})")
        if time.monotonic() > deadline:
            raise MountFailedError(f"{program} brought no mount within {_LIVE_SECONDS:.0f} s (log in {log})")
        time.sleep(_LOOK_SECONDS)
