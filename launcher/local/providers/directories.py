"""Making and removing the directories of channels, never through a mount or a link.

A directory that may still be a mount point is removed by `rmdir` only, which fails then: deleting its content would delete the
user's own files.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery


def for_each_delivery(
    provide: Callable[[Delivery], AbstractContextManager[Sequence[BindMount]]],
) -> Callable[..., AbstractContextManager[Sequence[BindMount]]]:
    """Let a provider of one delivery take any number of them, which share nothing."""

    @contextmanager
    def provide_all(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
        with ExitStack() as stack:
            yield tuple(bind for delivery in deliveries for bind in stack.enter_context(provide(delivery)))

    return provide_all


@contextmanager
def empty_directory(delivery: Delivery) -> Iterator[Path]:
    """Make `delivery.directory`, empty; on leaving, remove it, or warn if it is not empty.

    Raises:
        RefusedError: It exists already and is not empty.
    """
    directory = delivery.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise occupied(delivery, error) from error
    if any(directory.iterdir()):
        raise occupied(delivery, OSError(0, "it is not empty"))
    try:
        yield directory
    finally:
        try:
            directory.rmdir()
        except OSError as error:
            what = f"{directory} could not be removed ({error.strerror})"
            delivery.on_warning(f"{what}; check whether it is still mounted")


@contextmanager
def replaced(directory: Path, on_warning: Callable[[str], None]) -> Iterator[None]:
    """Remove an empty directory, so that a link or a copy can take its place; on leaving, it is empty again."""
    directory.rmdir()
    try:
        yield
    finally:
        if directory.is_symlink():
            directory.unlink()
        remove_tree(directory, on_warning)  # a copy, or what the job put in place of the link
        directory.mkdir(exist_ok=True)


def occupied(delivery: Delivery, error: OSError) -> RefusedError:
    """Return the error for a channel whose directory exists already."""
    what = f"channel {delivery.name!r}: cannot make {delivery.directory} ({error.strerror})"
    return RefusedError(f"{what}; every run needs its own directory")


def remove_tree(directory: Path, on_warning: Callable[[str], None]) -> None:
    """Remove a directory of our own files and links, which the job may have replaced by something else; warn if that fails.

    Links are removed, not followed. Never use it for a mount point.
    """
    try:
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory)
        else:
            directory.unlink(missing_ok=True)  # rmtree would wait for a writer of a FIFO
    except OSError as error:
        on_warning(f"{directory} could not be removed ({error}); remove it by hand")


def open_to_owner(folder: Path) -> None:
    """Let the owner read and remove all files and folders in a folder, except on other file systems, which are mounts."""
    device = folder.stat().st_dev
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            state = path.lstat()
            needed = 0o700 if stat.S_ISDIR(state.st_mode) else 0o600
            is_plain = stat.S_ISDIR(state.st_mode) or stat.S_ISREG(state.st_mode)
            if is_plain and state.st_dev == device and state.st_mode & needed != needed:
                with suppress(PermissionError):  # another user's
                    path.chmod(stat.S_IMODE(state.st_mode) | needed)
        folders[:] = [name for name in folders if Path(parent, name).lstat().st_dev == device]
