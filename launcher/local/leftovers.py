"""What must not remain of a run: how it is removed when the launcher ends, however it ends, and what is left if that fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def at_the_end(script: str, *arguments: str | Path) -> Iterator[None]:
    """Run a shell script, with its arguments, on leaving, or when this process is killed.

    Its shell waits for the end of its standard input: that of a pipe that ends with this process. If the shell itself was killed,
    as by a machine that is short of memory, the script is run on leaving.
    """
    command = ["/bin/sh", "-c", f"PATH=${{PATH:+$PATH:}}{os.defpath}; read -r _\n{script}", "sh", *map(str, arguments)]
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # In a new session: Ctrl-C must not end it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **silent) as shell:
        try:
            yield
        finally:
            shell.communicate(b"\n")  # not only the end of its input, which a forked process may hold open
            if shell.returncode < 0:
                subprocess.run(command, input=b"\n", start_new_session=True, check=False, **silent)


def is_mounted(directory: Path) -> bool:
    """Return whether the directory (absolute, without links in it) is a mount point.

    It is looked up in the kernel's table, since accessing it blocks if the program behind it is silent, and fails if it has died.
    """
    if sys.platform != "linux":
        return False  # Runs mount nothing there.
    place = re.sub(rb"[\s\\]", lambda odd: b"\\%03o" % ord(odd[0]), os.fsencode(directory))
    return b" %s " % place in Path("/proc/self/mountinfo").read_bytes()


def mount_below(folder: Path) -> Path | None:
    """Return a mount in a run's folder, which a killed run has left; None if there is none."""
    folders = (Path(parent, name) for parent, names, _ in os.walk(folder) for name in names)
    return next((path for path in folders if path.is_mount()), None)


def unlock(folder: Path) -> None:
    """Make all in a run's folder readable and removable for its owner."""
    locked = "'(' -type d ! -perm -700 -o -type f ! -perm -400 ')' -exec chmod u+rwX '{}' ';'"
    command = ["/bin/sh", "-c", f'find "$1" -xdev {locked}', "sh", str(folder)]
    subprocess.run(command, capture_output=True, check=False)


def remove_run(folder: Path, on_warning: Callable[[str], None]) -> None:
    """Remove the folder of a run that has ended; warn if that fails."""
    if (mount := mount_below(folder)) is not None:
        on_warning(f"{mount} is still mounted; unmount it with `fusermount3 -u {mount}`, and try again")
    else:
        unlock(folder)  # A run that was killed has not done it, and an overlay's own folder has no permissions.
        remove_tree(folder, on_warning)


def remove_tree(directory: Path, on_warning: Callable[[str], None]) -> None:
    """Remove a directory of our own files and links, which the job may have replaced by something else; warn if that fails.

    Links are removed, not followed. Never use it for a mount point: deleting its content would delete the user's own files.
    """
    try:
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory)
        else:
            directory.unlink(missing_ok=True)  # rmtree would wait for a writer of a FIFO
    except OSError as error:
        on_warning(f"{directory} could not be removed ({error}); remove it by hand")
