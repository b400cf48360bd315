"""FastFile mode: a lazy, read-only mount of the channel's folder, by a FUSE program that is installed.

A job that lists, seeks, or opens thousands of files behaves over a mount as under FastFile, but not over a copy, so a copy is the
last resort and causes a warning. Like FastFile, a mount has folders only, so the URI must name one.

A program that can combine folders mounts those of all channels and hosts together, each in a subdirectory; a host's channel is a
bind mount of that, or a link without namespaces. If a host gets only some objects (its shard, or a sample), the program shows only
those, or the channel consists of links to them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery
from launcher.local.data.selection import NoObjectsError, S3Object, as_tree
from launcher.local.mounts.programs import TOOLS, MountFailedError, MountTool, View, Which, mounted
from launcher.local.providers.copied import copied
from launcher.local.providers.directories import empty_directory, replaced
from launcher.request.view import s3_source, with_source
from launcher.s3.uri import S3Location, parse_s3_uri

_FUSE = Path("/dev/fuse")
_MOUNT = "mount"  # the folder of the mount, beside that of links
_PROGRAMS = "`apt-get install fuse3 rclone`"


@dataclass(frozen=True)
class _Folder:
    """The folder of a channel, and the objects in it that a host gets."""

    place: S3Location
    objects: Sequence[S3Object]
    paths: Sequence[str]
    whole: bool  # whether those are all objects of the folder


@contextmanager
def provide(*deliveries: Delivery, which: Which = shutil.which) -> Iterator[Sequence[BindMount]]:
    """Mount each host's objects at `delivery.directory`, or copy them with a warning; both end on leaving.

    The mount program's log stays in the first delivery's `scratch`.

    Args:
        deliveries: The channels of all hosts.
        which: Finds the path of a program, as `shutil.which` does.

    Raises:
        RefusedError: A URI is not a folder with objects, keys cannot be files, or a copy fails.
    """
    names = [each.name if each.is_same_for_all_hosts else f"{each.name}.{each.host}" for each in deliveries]
    folders: dict[str, _Folder] = {}
    for name, delivery in zip(names, deliveries, strict=True):
        if name not in folders:
            folders[name] = _folder(delivery)
    binds: list[BindMount] = []
    with ExitStack() as stack:
        shown = {name: folder for name, folder in folders.items() if folder.objects}
        places, reason = _mount_by_any(stack, deliveries[0], shown, which) if shown else ({}, "")
        for name, delivery in zip(names, deliveries, strict=True):
            is_mount = not reason and (name not in shown or places[name].parent.name == _MOUNT)
            delivery.on_delivered(
                "a FUSE mount" if is_mount else "a copy" if reason else "links to a FUSE mount", is_mount
            )
            if name not in shown:
                stack.enter_context(empty_directory(delivery))
            elif reason:
                what = f"channel {delivery.name!r}: FastFile is a copy here, not a lazy mount"
                delivery.on_warning(f"{what}: {reason}")
                stack.enter_context(copied(delivery, folders[name].objects))
            elif delivery.namespaces:
                target = stack.enter_context(empty_directory(delivery))
                binds.append(BindMount(places[name], target, read_only=True))
            else:
                stack.enter_context(_linked(delivery, places[name]))
        yield binds


def _folder(delivery: Delivery) -> _Folder:
    source = s3_source(delivery.channel)
    what = f"channel {delivery.name!r}: FastFile"
    if source["S3DataType"] != "S3Prefix":
        raise RefusedError(f"{what} supports S3DataType S3Prefix only, not {source['S3DataType']}; use Pipe or File")
    place = parse_s3_uri(source["S3Uri"])
    if partial_name := bool(place.key) and not place.key.endswith("/"):
        place = S3Location(place.bucket, f"{place.key}/")
    channel = with_source(delivery.channel, S3Uri=str(place))
    try:
        found = as_tree(delivery.store.listed(channel, delivery.sample))
    except NoObjectsError as error:
        raise NoObjectsError(f"{error} ({what} needs a folder, not the beginning of a name)") from error
    if partial_name:
        reason = "FastFile reads whole folders, not the beginning of a name"
        delivery.on_warning(f"{what} reads {source['S3Uri']} as the folder {place}; end it with '/': {reason}")
    objects = delivery.select(found)
    whole = delivery.sample is None and len(objects) == len(found)
    return _Folder(place, objects, [each.path for each in objects], whole)


def _mount_by_any(
    stack: ExitStack, delivery: Delivery, folders: Mapping[str, _Folder], which: Which
) -> tuple[dict[str, Path], str]:
    """Try the installed programs; return where the first that works mounts each folder, or else the reasons and a remedy."""
    installed = [tool for tool in TOOLS if which(tool.program)]
    if (reason := _why_no_mount(installed)) is not None:
        return {}, reason
    partial = not all(folder.whole for folder in folders.values())

    def rank(tool: MountTool) -> tuple[bool, bool]:
        return partial and not tool.can_select, tool.can_combine is not (len(folders) > 1)

    reasons: list[str] = []
    for tool in sorted(installed, key=rank):
        try:
            with ExitStack() as attempt:
                places = _mount(attempt, delivery, folders, tool, which)
                stack.push(attempt.pop_all())
        except MountFailedError as error:
            reasons.append(str(error))
        else:
            return places, ""
    remedy = f"try another program, for example by {_PROGRAMS}"
    if os.geteuid():
        remedy = "run as root, or where FUSE is open to every user"
    return {}, f"{'; '.join(dict.fromkeys(reasons))}; {remedy}"


def _why_no_mount(installed: Sequence[MountTool]) -> str | None:
    """Return why nothing can be mounted, and the remedy; None if an installed program can try."""
    if not _FUSE.exists():
        remedy = f"let root run `modprobe fuse`, or start the container around this with --device {_FUSE} --cap-add SYS_ADMIN"
        return f"{_FUSE} does not exist; {remedy}"
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"this user may not open {_FUSE}; run as root, or let root run `chmod a+rw {_FUSE}`"
    if not installed:
        programs = ", ".join(dict.fromkeys(tool.program for tool in TOOLS))
        by_root = "let root run " if os.geteuid() else ""
        return f"none of {programs} is installed; {by_root}{_PROGRAMS}"
    return None


def _mount(
    stack: ExitStack, delivery: Delivery, folders: Mapping[str, _Folder], tool: MountTool, which: Which
) -> dict[str, Path]:
    """Mount the folders by one tool; return the path of each folder, or of the host's part of it."""
    delivery.scratch.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="fastfile-", dir=delivery.scratch)).resolve()
    root = scratch / _MOUNT
    parts = [folders] if tool.can_combine else [{name: folder} for name, folder in folders.items()]
    for shown in parts:
        directory = root if tool.can_combine else root.joinpath(*shown)
        directory.mkdir(parents=True)
        only = None
        if tool.can_select and not all(folder.whole for folder in shown.values()):
            paths = [root / name / path for name, folder in shown.items() for path in folder.paths]
            only = scratch / f"{'-'.join(shown)[:200]}.txt"
            only.write_text("".join(f"{path.relative_to(directory)}\n" for path in paths), encoding="utf-8")
        places = {name: folder.place for name, folder in shown.items()}
        view = View(places, directory, scratch, delivery.store.environ, only, delivery.other_users)
        stack.enter_context(mounted(tool, view, which, delivery.on_warning))
    found = {}
    for name, folder in folders.items():
        odd = [path for path in folder.paths if not path.isprintable()]  # rclone changes control characters
        for path in [folder.paths[0], *odd]:
            if not os.path.exists(root / name / path):  # noqa: PTH110 - treats every error of the program alike
                raise MountFailedError(f"{tool.program} does not show {path!r} (logs in {scratch})")
        found[name] = root / name
        if not folder.whole and not tool.can_select:
            reason = f"{tool.program} cannot mount a part of a folder; rclone can"
            delivery.on_warning(f"channel {name!r}: its files are links to {root / name}, since {reason}")
            found[name] = scratch / "links" / name
            for path in folder.paths:
                link = found[name] / path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(root / name / path)
    return found


@contextmanager
def _linked(delivery: Delivery, place: Path) -> Iterator[None]:
    """Make `delivery.directory` a link to the place; remove it on leaving."""
    with empty_directory(delivery) as directory, replaced(directory, delivery.on_warning):
        directory.symlink_to(place)
        yield
