"""FastFile mode: a lazy, read-only mount of the channel's folder, by a FUSE program that is installed.

A job that lists, seeks, or opens thousands of files behaves over a mount as it will under FastFile; over a copy it does
not, so a copy is the last resort and says so. Like FastFile itself a mount knows folders only, so the URI must name one.
Where a host gets only some of the objects (its share, or a sample), the program shows only those, or links name them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import RefusedError
from launcher.local.delivery import BindMount, Delivery
from launcher.local.objects import NoObjectsError, S3Object, as_tree, host_items, objects_under
from launcher.local.providers.copied import copied
from launcher.local.providers.fuse import MountFailedError, Which, mounted
from launcher.local.providers.mount_tools import TOOLS, MountTool, View
from launcher.local.providers.places import empty_directory, remove_tree
from launcher.s3_uri import Place, parse_s3_uri

_FUSE = Path("/dev/fuse")
_REMEDY = "`apt-get install fuse3 rclone` makes it a mount"


@dataclass(frozen=True)
class _Folder:
    """The folder of the channel and what this host gets of it."""

    place: Place
    objects: Sequence[S3Object]
    whole: bool  # every object of the folder


@contextmanager
def provide(delivery: Delivery, *, which: Which = shutil.which) -> Iterator[Sequence[BindMount]]:
    """This host's objects below `delivery.directory` as a live mount, else as a copy with a warning; gone on leaving.

    `which` finds programs; one that finds none makes it a copy. The program's log stays in `delivery.scratch`. Raises
    RefusedError where the URI is no folder with objects, where keys cannot be files, and as a copy does.
    """
    folder = _folder(delivery)
    with ExitStack() as stack:
        if not folder.objects:
            stack.enter_context(empty_directory(delivery))
        elif reason := _mount_by_any(stack, delivery, folder, which):
            delivery.on_warning(
                f"channel {delivery.name!r}: FastFile is a copy here, not a lazy mount: {reason}; {_REMEDY}"
            )
            stack.enter_context(copied(delivery, folder.objects))
        yield ()


def _folder(delivery: Delivery) -> _Folder:
    source = delivery.channel["DataSource"]["S3DataSource"]
    what = f"channel {delivery.name!r}: FastFile"
    if source["S3DataType"] != "S3Prefix":
        raise RefusedError(f"{what} takes S3DataType S3Prefix only, not {source['S3DataType']}; use Pipe or File")
    place = parse_s3_uri(source["S3Uri"])
    if partial_name := bool(place.key) and not place.key.endswith("/"):
        place = Place(place.bucket, f"{place.key}/")
    try:
        found = as_tree(objects_under(str(place), delivery.store.client, delivery.sample))
    except NoObjectsError as error:
        raise NoObjectsError(f"{error} ({what} takes a folder, not the beginning of a name)") from error
    if partial_name:
        delivery.on_warning(
            f"{what} reads {source['S3Uri']} as the folder {place}; end it with '/': SageMaker documents that it takes "
            "no partial names"
        )
    objects = host_items(found, delivery)
    return _Folder(place, objects, whole=delivery.sample is None and len(objects) == len(found))


def _mount_by_any(stack: ExitStack, delivery: Delivery, folder: _Folder, which: Which) -> str:
    """Enters the first mount that works into the stack; says why where there is none."""
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"{_FUSE} is not there, or not for this user"
    installed = [tool for tool in TOOLS if which(tool.program)]
    if not installed:
        return f"none of {', '.join(dict.fromkeys(tool.program for tool in TOOLS))} is installed"
    reasons = []
    for tool in sorted(installed, key=lambda tool: not folder.whole and not tool.can_select):
        try:
            stack.enter_context(_shown(delivery, folder, tool, which))
        except MountFailedError as error:
            reasons.append(str(error))
        else:
            return ""
    return "; ".join(reasons)


@contextmanager
def _shown(delivery: Delivery, folder: _Folder, tool: MountTool, which: Which) -> Iterator[None]:
    """The folder, or this host's part of it, at the channel's directory, by this tool."""
    delivery.scratch.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{delivery.name}-{delivery.host}-", dir=delivery.scratch)).resolve()
    paths = [found.path for found in folder.objects]
    with ExitStack() as stack:
        directory = stack.enter_context(empty_directory(delivery)).resolve()
        only, root = None, directory
        if not folder.whole and tool.can_select:
            only = scratch / "only.txt"
            only.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
        elif not folder.whole:
            root = scratch / "all"
            root.mkdir()
        view = View(folder.place, root, scratch, delivery.store.environ, only)
        stack.enter_context(mounted(tool, view, which, delivery.on_warning))
        odd = [path for path in paths if not path.isprintable()]  # rclone respells control characters
        for path in [paths[0], *odd]:
            if not _is_shown(root / path):
                raise MountFailedError(f"{tool.program} does not show {path!r} (logs in {scratch})")
        if root is not directory:
            delivery.on_warning(
                f"channel {delivery.name!r}: its files are links to {root}, since {tool.program} cannot show a part of "
                "a folder; rclone can"
            )
            stack.callback(_remove_links, directory, delivery)
            _link_all(directory, root, paths)
        yield


def _is_shown(path: Path) -> bool:
    """Whether the file is there; a program without access to the store answers with any error."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _link_all(directory: Path, root: Path, paths: Sequence[str]) -> None:
    for path in paths:
        link = directory / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(root / path)


def _remove_links(directory: Path, delivery: Delivery) -> None:
    """Leaves the directory empty again, whatever the job put beside the links; nothing is mounted on it."""
    remove_tree(directory, delivery.on_warning)
    directory.mkdir(exist_ok=True)
