"""File mode: every object of the channel is a file of the host's own before the job starts.

With overlays, it is a file of the `--data` folder below an overlay, if that folder contains nothing else. Otherwise it is a copy,
which an error or Ctrl-C removes. Keys are checked before the first byte, so no path can lead outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock

from launcher.aws.threads import start
from launcher.local import processes
from launcher.local.channels.delivery import Delivery, empty_directory
from launcher.local.channels.objects import FolderObjects
from launcher.local.channels.selection import S3Object, as_tree, written_as
from launcher.local.workspace import BindMount
from launcher.request.view import s3_source
from launcher.s3.uri import S3Location, parse_s3_uri

_AT_ONCE = 8  # concurrent objects; more gain nothing on one machine's link and cost a connection each
_QUIT_SECONDS = 2  # to wait for them; if the network hangs, Ctrl-C need not


@contextmanager
def provide(delivery: Delivery) -> Iterator[BindMount | None]:
    """Make the host's objects files below `delivery.directory`, with their relative keys; removed on leaving.

    Raises RefusedError if a channel has no objects, or keys that cannot be files (before anything is written), or if the store or
    the disk refuses.
    """
    objects = delivery.select(as_tree(delivery.store.listed(delivery.channel, delivery.sample)))
    source = _own_folder(delivery, objects)
    if source is None:
        with copied(delivery, objects):
            delivery.on_delivered("a copy", True)
            yield None
        return
    written = delivery.scratch / "written"
    written.mkdir(parents=True)
    try:
        with empty_directory(delivery) as target:
            delivery.on_delivered("files below an overlay", True)
            yield BindMount(source, target, read_only=False, written=written)
    finally:
        processes.remove_overlay(written, delivery.on_warning)


def _own_folder(delivery: Delivery, objects: Sequence[S3Object]) -> Path | None:
    """Return the folder on this disk whose content is exactly the channel's and can be under an overlay; None if none is."""
    if not delivery.overlays or not isinstance(delivery.store.objects, FolderObjects):
        return None
    place = parse_s3_uri(s3_source(delivery.channel)["S3Uri"])
    base = place.key if place.key.endswith("/") or not place.key else f"{place.key}/"
    if any(found.key != base + found.path for found in objects):
        return None
    folder = delivery.store.objects.folder(S3Location(place.bucket, base), len(objects))
    if folder and (reason := processes.why_no_overlay(folder.resolve(), delivery.scratch)):
        delivery.on_warning(f"File channels are copied for each host, since overlays do not work here ({reason})")
        return None
    return folder and folder.resolve()


@contextmanager
def copied(delivery: Delivery, objects: Sequence[S3Object]) -> Iterator[None]:
    """Copy the objects, which `as_tree` has accepted, to files below `delivery.directory`; remove them on leaving."""
    with empty_directory(delivery) as directory:
        if delivery.other_users:
            directory.chmod(0o777)  # the image's user may write there
        _copy_all(delivery, objects, directory)
        yield


def _copy_all(delivery: Delivery, objects: Iterable[S3Object], root: Path) -> None:
    """Copy all objects, remote ones by several threads; the first error, or Ctrl-C, stops them all before it is raised."""
    pending, lock, stop = iter(objects), Lock(), Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                found = next(pending, None)
            if found is None:
                return
            with written_as(found, root / found.path) as target:
                for count in delivery.store.objects.copy(found.place, target):
                    delivery.on_bytes(count)
                    if stop.is_set():
                        return

    if not delivery.store.remote:  # threads gain nothing on a disk
        work()
        return
    copies = list[Future[None]]()
    try:
        copies.extend(start(work) for _ in range(_AT_ONCE))
        for finished in as_completed(copies):
            finished.result()
    finally:
        stop.set()
        wait(copies, _QUIT_SECONDS)
