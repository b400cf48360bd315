"""EFS and FSx for Lustre: the channel's directory is a directory of the file system itself, read-only or not.

No provider can mount for a job that runs in namespaces made later, so this one finds the directory and yields a `BindMount`
for the runner. Without namespaces, `_place_without_mounts` makes a copy for `ro`, since a link would let the job write to the
source, and a link for `rw`.
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
    """An empty `delivery.directory` and the one mount that belongs on it, or without namespaces what stands in for it.

    Raises RefusedError where no directory stands for the file system, where DirectoryPath is not in it, or leaves it.
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
    """The directory on this machine that the channel's DirectoryPath means.

    A path on FSx for Lustre begins with the file system's mount name, for which a local directory need not have a
    folder: where it has none, the rest of the path is looked up, and a warning says so.
    """
    source = file_system_source(delivery.channel)
    identity, asked = source["FileSystemId"], source["DirectoryPath"]
    place = f"channel {delivery.name!r}: {source['FileSystemType']} {identity}"
    remedy = f"name it with --mount {identity}=PATH, or put it into the --data folder"
    root = delivery.file_systems.get(identity)
    if root is None:
        raise RefusedError(f"{place}: no directory here stands for this file system; {remedy}")
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
                    f"{place}: {parts[0]!r} of {asked!r} is taken for the mount name; reading {directory}"
                )
            return directory.resolve()
    raise RefusedError(f"{place}: {asked!r} is no directory there (looked for {' and '.join(map(str, tried))}); "
                       f"create it, or {remedy}")  # fmt: skip


@contextmanager
def _place_without_mounts(bind: BindMount, on_warning: Callable[[str], None]) -> Iterator[None]:
    """Shows the source at the target without mounting: a copy where it is read-only, else a symbolic link.

    The target must be an empty directory, as a provider leaves it, and is one again on leaving. Raises RefusedError
    where the copy fails.
    """
    bind.target.rmdir()
    try:
        if bind.read_only:
            on_warning(f"{bind.target} is a copy of {bind.source}: without namespaces nothing else keeps it read-only")
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
    """Copies links as links: what they name inside the tree is then the copy, and nothing outside is copied."""
    try:
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        first, _, reason = error.args[0][0]
        raise RefusedError(
            f"{first}: cannot be copied ({reason}); remove it, or use a machine with namespaces"
        ) from error
    except OSError as error:
        raise RefusedError(f"{source}: cannot be copied to {target} ({error.strerror}); free space there") from error
