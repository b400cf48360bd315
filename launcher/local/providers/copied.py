"""File mode: every object of the channel is a file of the host's own before the job starts.

A copy is made in a new directory beside the channel's and renamed when it is complete, so neither an error nor Ctrl-C leaves a
part of a channel where a job would read it. Keys are checked before the first byte, so no path can lead outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock

from launcher.local import sandbox
from launcher.local.data.delivery import BindMount, Delivery
from launcher.local.data.selection import S3Object, as_tree, written_as
from launcher.local.providers.directories import empty_directory, occupied, remove_tree
from launcher.request.view import s3_source
from launcher.s3.uri import S3Location, parse_s3_uri

_AT_ONCE = 8  # concurrent objects; more gain nothing on one machine's link and cost a connection each


@contextmanager
def provide(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
    """Make each host's objects files below `delivery.directory`, with their relative keys; removed on leaving.

    With namespaces, hosts that get the same objects share one folder, each through its own overlay: the `--data` folder itself if
    it contains nothing else, or one copy. Otherwise each host gets a copy.

    Raises:
        RefusedError: A channel has no objects, or keys that cannot be files (before anything is written); or the store or the
            disk refuses.
    """
    trees: dict[str, list[S3Object]] = {}
    shared: dict[str, Path | None] = {}
    for delivery in deliveries:
        if delivery.name not in trees:
            trees[delivery.name] = as_tree(delivery.store.listed(delivery.channel, delivery.sample))
    with ExitStack() as stack:
        binds = []
        for delivery in deliveries:
            objects = delivery.select(trees[delivery.name])
            if delivery.name not in shared:
                shared[delivery.name] = _shared_folder(stack, delivery, objects)
            if (source := shared[delivery.name]) is None:
                stack.enter_context(copied(delivery, objects))
                delivery.on_delivered("a copy", True)
                continue
            written = delivery.scratch / "written"
            written.mkdir(parents=True)
            stack.callback(remove_tree, written, delivery.on_warning)  # warns of what remains after the next line
            stack.callback(sandbox.remove_overlay, written)
            target = stack.enter_context(empty_directory(delivery))
            delivery.on_delivered("files below an overlay", True)
            binds.append(BindMount(source, target, read_only=False, written=written))
        yield binds


def _shared_folder(stack: ExitStack, delivery: Delivery, objects: Sequence[S3Object]) -> Path | None:
    """Return the folder that all hosts of a channel get through overlays; None if each gets its own copy."""
    if not (delivery.namespaces and delivery.is_same_for_all_hosts):
        return None
    folder = _folder_of(delivery, objects)
    if folder is None and len(delivery.hosts) == 1:
        return None
    delivery.data_dir.mkdir(parents=True, exist_ok=True)
    if reason := sandbox.why_no_overlay((folder or delivery.data_dir).resolve(), delivery.scratch):
        delivery.on_warning(f"File channels are copied for each host, since overlays do not work here ({reason})")
        return None
    if folder is None:
        copy = replace(delivery, data_dir=delivery.scratch / "shared")
        stack.enter_context(copied(copy, objects))
        folder = copy.directory
    return folder.resolve()


def _folder_of(delivery: Delivery, objects: Sequence[S3Object]) -> Path | None:
    """Return the folder on this disk whose content is exactly the channel's; None if there is none."""
    place = parse_s3_uri(s3_source(delivery.channel)["S3Uri"])
    base = place.key if place.key.endswith("/") or not place.key else f"{place.key}/"
    if any(found.key != base + found.path for found in objects):
        return None
    return delivery.store.objects.folder(S3Location(place.bucket, base), len(objects))


@contextmanager
def copied(delivery: Delivery, objects: Sequence[S3Object]) -> Iterator[None]:
    """Copy the objects, which `as_tree` has accepted, to files below `delivery.directory`; remove them on leaving."""
    delivery.data_dir.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{delivery.name}.", dir=delivery.data_dir) as temporary:
        unfinished = Path(temporary) / "files"
        unfinished.mkdir()
        _copy_all(delivery, objects, unfinished)
        try:
            unfinished.rename(delivery.directory)
        except OSError as error:
            raise occupied(delivery, error) from error
    try:
        yield
    finally:
        remove_tree(delivery.directory, delivery.on_warning)


def _copy_all(delivery: Delivery, objects: Iterable[S3Object], root: Path) -> None:
    """Copy all objects, remote ones by several threads; the first error, or Ctrl-C, stops them all before it is raised."""
    pending, lock, stop = iter(objects), Lock(), Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                found = next(pending, None)
            if found is None:
                return
            _copy(delivery, found, root / found.path, stop)

    if not delivery.store.remote:  # threads gain nothing on a disk
        work()
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"copy-{delivery.name}") as pool:
        try:
            for finished in as_completed([pool.submit(work) for _ in range(_AT_ONCE)]):
                finished.result()
        finally:
            stop.set()


def _copy(delivery: Delivery, found: S3Object, path: Path, stop: Event) -> None:
    with written_as(found, path):
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            for count in delivery.store.objects.copy(found.place, target):
                delivery.on_bytes(count)
                if stop.is_set():
                    return
        finally:
            os.close(target)
