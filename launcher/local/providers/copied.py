"""File mode: every object of the channel is copied before the job starts.

The copy grows in a directory beside the channel's and takes its name only when it is whole, so neither an error nor Ctrl-C
leaves half a channel, or half a file, where a job would look for a whole one. It is a new directory in which nobody else
writes, and keys were checked before the first byte, so no path in it can lead outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock

from launcher.errors import RefusedError
from launcher.local.delivery import BindMount, Delivery
from launcher.local.objects import S3Object, as_tree, host_items, list_objects
from launcher.local.providers.places import occupied, remove_tree
from launcher.local.s3_reading import read_object

_AT_ONCE = 8  # objects under way; more gains nothing on one machine's link and costs a connection each


@contextmanager
def provide(delivery: Delivery) -> Iterator[Sequence[BindMount]]:
    """This host's objects as files under `delivery.directory`, relative keys kept; removed on leaving.

    Raises RefusedError, before anything is written, where the channel has no objects or keys that cannot be files; and
    where the store refuses or the disk does.
    """
    objects = as_tree(list_objects(delivery.channel, delivery.store.client, delivery.sample))
    with copied(delivery, host_items(objects, delivery)):
        yield ()


@contextmanager
def copied(delivery: Delivery, objects: Sequence[S3Object]) -> Iterator[None]:
    """The objects, which `as_tree` has passed, as files under `delivery.directory`; removed on leaving."""
    delivery.data_dir.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{delivery.name}.", dir=delivery.data_dir) as beside:
        growing = Path(beside) / "files"
        growing.mkdir()
        _copy_all(delivery, objects, growing)
        try:
            growing.rename(delivery.directory)
        except OSError as error:
            raise occupied(delivery, error) from error
    try:
        yield
    finally:
        remove_tree(delivery.directory, delivery.on_warning)


def _copy_all(delivery: Delivery, objects: Iterable[S3Object], root: Path) -> None:
    """Copies with several threads; the first error, or Ctrl-C, stops them all and is raised once they have ended."""
    pending, lock, stop = iter(objects), Lock(), Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                found = next(pending, None)
            if found is None:
                return
            _copy(delivery, found, root / found.path, stop)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"copy-{delivery.name}") as pool:
        try:
            for finished in as_completed([pool.submit(work) for _ in range(_AT_ONCE)]):
                finished.result()
        finally:
            stop.set()


def _copy(delivery: Delivery, found: S3Object, path: Path, stop: Event) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            for chunk in read_object(delivery.store.client, found.place):
                if stop.is_set():
                    return
                file.write(chunk)
                delivery.on_bytes(len(chunk))
    except OSError as error:
        raise RefusedError(f"{found.place}: cannot be written as {path}: {error.strerror}; free space there, or rename "
                           "the object") from error  # fmt: skip
