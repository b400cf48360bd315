"""10 KB files on a FUSE mount, each 10 ms away: ours against a plain loop. And a local disk, where ours must not be slower."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from far_store import far_store, fill
from rounds import Row, interleaved, rate, row

FILES, SIZE = 2000, 10_000


def measure(folder: Path) -> list[Row]:
    """Two rows; the first only where rclone and FUSE are there."""
    rows = []
    source = folder / "s3" / "bucket" / "files"
    fill(source, FILES, SIZE)
    if shutil.which("rclone") and Path("/dev/fuse").exists():
        with far_store(folder, 0.01) as endpoint, far_mount(folder, endpoint) as mount:
            found = interleaved(
                {
                    "ours": lambda: rate(lambda: _ours(mount, FILES)),
                    "plain loop": lambda: rate(lambda: _plain(mount, 200)),
                    "limit": lambda: rate(lambda: _threads(mount, FILES)),
                }
            )
            rows.append(row("10 KB files on a FUSE mount, 10 ms latency", found, "plain loop", 8, unit="files/s"))
    found = interleaved(
        {"ours": lambda: rate(lambda: _ours(source, FILES)), "plain loop": lambda: rate(lambda: _plain(source, FILES))}
    )
    rows.append(row("10 KB files on a local disk", found, "plain loop", 0.8, unit="files/s"))
    return rows


@contextmanager
def far_mount(folder: Path, endpoint: str) -> Iterator[Path]:
    """The bucket's folder `files` by rclone, as a local run of FastFile has it: a request for each file."""
    from launcher.local.channels.mounted import View, mounted
    from launcher.s3.uri import S3Location

    place, scratch = (folder / "mount").resolve(), folder / "scratch"
    place.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with mounted(View(S3Location("bucket", "files/"), place, scratch, {**environ, "AWS_ENDPOINT_URL": endpoint})):
        yield place


def _ours(directory: Path, count: int) -> int:
    from sagemaker_channels.formats import objects
    from sagemaker_channels.job.environment import Channel
    from sagemaker_channels.sources import mounted

    channel = Channel("train", "FastFile", None, "FullyReplicated", "None", directory)
    found = 0
    for key, stream in mounted.open_objects(channel, islice(mounted.objects(channel), count)):
        for sample in objects.FORMAT.split(stream, key):
            found += len(sample["data"]) == SIZE
        stream.close()
    return found


def _plain(directory: Path, count: int) -> int:
    found = 0
    for file in sorted(directory.iterdir())[-count:]:
        with file.open("rb") as stream:
            found += len(stream.read()) == SIZE
    return found


def _threads(directory: Path, count: int) -> int:
    """64 threads that only read: nothing in order, nothing kept."""
    files = iter(sorted(directory.iterdir())[:count])
    lock = threading.Lock()
    found = [0]

    def run() -> None:
        while True:
            with lock:
                file = next(files, None)
            if file is None:
                return
            with file.open("rb") as stream:
                read = len(stream.read()) == SIZE
            with lock:
                found[0] += read

    threads = [threading.Thread(target=run) for _ in range(64)]
    _each(threads, threading.Thread.start)
    _each(threads, threading.Thread.join)
    return found[0]


def _each(threads: list[threading.Thread], do: Callable[[threading.Thread], None]) -> None:
    for thread in threads:
        do(thread)
