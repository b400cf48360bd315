"""EFS and FSx for Lustre: the channel's directory is a directory of the file system itself, read-only or writable.

The job's namespaces do not exist yet, so this provider yields a `BindMount` for the runner. Without namespaces, `ro` is a copy,
since a link would let the job write to the source, and `rw` is a link.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery
from launcher.local.providers.places import empty_directory, one_by_one, remove_tree
from launcher.request.view import file_system_source

_WRITABLE = "rw"
_LUSTRE = "FSxLustre"


@one_by_one
@contextmanager
def provide(delivery: Delivery) -> Iterator[Sequence[BindMount]]:
    """Make an empty `delivery.directory` and yield its mount; without namespaces, make the copy or link instead.

    Raises:
        RefusedError: No directory stands for the file system, or DirectoryPath is not in it or leaves it.
    """
    source = find_directory(delivery)
    writable = file_system_source(delivery.channel).get("FileSystemAccessMode") == _WRITABLE
    if writable:
        delivery.on_warning(f"channel {delivery.name!r}: the job can write to {source} (FileSystemAccessMode rw)")
    with empty_directory(delivery) as target:
        bind = BindMount(source, target, read_only=not writable)
        if delivery.namespaces:
            yield (bind,)
            return
        with _place_without_mounts(bind, delivery.on_warning):
            yield ()


def find_directory(delivery: Delivery) -> Path:
    """Return the directory on this machine for the channel's DirectoryPath.

    A path on FSx for Lustre begins with the file system's mount name. If the local directory has no folder of that name, the rest
    of the path is used, with a warning.
    """
    source = file_system_source(delivery.channel)
    identity, asked = source["FileSystemId"], source["DirectoryPath"]
    place = f"channel {delivery.name!r}: {source['FileSystemType']} {identity}"
    remedy = f"name it with --mount {identity}=PATH, or put it into the --data folder"
    root = delivery.file_systems.get(identity)
    if root is None:
        raise RefusedError(f"{place}: no directory stands for this file system; {remedy}")
    parts = [part for part in PurePosixPath(asked).parts if part != "/"]
    if ".." in parts:
        raise RefusedError(f"{place}: DirectoryPath {asked!r} leaves the file system; write it without '..'")
    tried = [root.joinpath(*parts)]
    if source["FileSystemType"] == _LUSTRE and parts:
        tried.append(root.joinpath(*parts[1:]))
    for directory in tried:
        if directory.is_dir():
            if directory is not tried[0]:
                delivery.on_warning(
                    f"{place}: {parts[0]!r} of {asked!r} is treated as the mount name; reading {directory}"
                )
            return directory.resolve()
    raise RefusedError(f"{place}: {asked!r} is not a directory there (looked for {' and '.join(map(str, tried))}); "
                       f"create it, or {remedy}")  # fmt: skip


@contextmanager
def _place_without_mounts(bind: BindMount, on_warning: Callable[[str], None]) -> Iterator[None]:
    """Show the source at the target without a mount: by a copy if it is read-only, else by a symbolic link.

    The target is an empty directory before and afterwards. Raises RefusedError if the copy fails.
    """
    bind.target.rmdir()
    try:
        if bind.read_only:
            on_warning(f"{bind.target} is a copy of {bind.source}: without namespaces only a copy protects the source")
            _copy_tree(bind.source, bind.target)
        else:
            on_warning(f"{bind.target} is a link to {bind.source}: the job writes there")
            bind.target.symlink_to(bind.source)
        yield
    finally:
        if bind.target.is_symlink():
            bind.target.unlink()
        else:
            remove_tree(bind.target, on_warning)
        bind.target.mkdir(exist_ok=True)


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a tree, with links as links: those within the tree lead to the copy, and files outside are not copied."""
    try:
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        first, _, reason = error.args[0][0]
        raise RefusedError(
            f"{first}: cannot be copied ({reason}); remove it, or use a machine with namespaces"
        ) from error
    except OSError as error:
        raise RefusedError(f"{source}: cannot be copied to {target} ({error.strerror}); free space there") from error
