"""EFS and FSx for Lustre: the channel's directory is a directory of the file system itself, read-only or writable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from launcher.errors import RefusedError
from launcher.local.channels.delivery import Delivery, empty_directory
from launcher.local.workspace import BindMount
from launcher.request.view import file_system_source
from launcher.spec.channels import KINDS, source_of_entry


@contextmanager
def provide(delivery: Delivery) -> Iterator[BindMount]:
    """Make an empty `delivery.directory` and yield its mount.

    Raises RefusedError if the file system has no directory here, or DirectoryPath is not in it or leaves it.
    """
    source = _find_directory(delivery)
    writable = file_system_source(delivery.channel).get("FileSystemAccessMode") == "rw"
    if writable:
        delivery.on_warning(f"channel {delivery.name!r}: the job can write to {source} (FileSystemAccessMode rw)")
    way = "bound" if delivery.namespaces else "linked" if writable else "copied"
    delivery.on_delivered(f"a {way} folder of this machine", False)
    with empty_directory(delivery) as target:
        yield BindMount(source, target, read_only=not writable)


def _find_directory(delivery: Delivery) -> Path:
    """Return the directory on this machine for the channel's DirectoryPath.

    If the path begins with a mount name, and the local directory has no folder of that name, the rest of the path is used, with a
    warning.
    """
    source = file_system_source(delivery.channel)
    identity, asked = source["FileSystemId"], source["DirectoryPath"]
    place = f"channel {delivery.name!r}: {source['FileSystemType']} {identity}"
    kind = KINDS[str(source_of_entry(delivery.channel))]
    remedy = (
        f"name it with --mount {identity}=PATH, or put it into {kind.data_folder()}/{identity} of the --data folder"
    )
    root = delivery.file_systems.get(identity)
    if root is None:
        raise RefusedError(f"{place}: this file system has no directory on this machine; {remedy}")
    if ".." in PurePosixPath(asked).parts:
        raise RefusedError(f"{place}: DirectoryPath {asked!r} leaves the file system; write it without '..'")
    tried = kind.folders(root, asked)
    for directory in tried:
        if directory.is_dir():
            if directory is not tried[0]:
                what = f"{tried[0].relative_to(root).parts[0]!r} of {asked!r} is treated as the mount name"
                delivery.on_warning(f"{place}: {what}; reading {directory}")
            return directory.resolve()
    looked = " and ".join(map(str, tried))
    raise RefusedError(f"{place}: {asked!r} is not a directory there (looked for {looked}); create it, or {remedy}")
