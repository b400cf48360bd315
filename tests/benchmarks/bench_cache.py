"""The second epoch of a channel that was kept by `cache_dir`: against the same objects on a local disk, read plainly.

The first epoch, over an S3 20 ms away, is not measured. What the second is held against reads no more than it must: for
tar shards our own reader of a directory, for whole objects a loop of open and read.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from far_store import connector_channel, far_store, fill
from local_job import mounted_job, train_folder
from rounds import Row, exhaust, interleaved, row

from sagemaker_channels import open_channel
from sagemaker_channels.formats import tar
from sagemaker_channels.job.environment import Environment

SHARDS, MEMBERS, OBJECTS, SIZE = 6, 1000, 4000, 100_000
EPOCHS = 4  # a round, since one takes a tenth of a second only


def measure(folder: Path) -> list[Row]:
    """Two rows: tar shards and whole objects; `folder` takes 2 GB."""
    fill(folder / "s3/bucket/objects", OBJECTS, SIZE)
    shards = folder / "s3/bucket/shards"
    shards.mkdir(parents=True, exist_ok=True)
    payload = bytes(SIZE)
    for number in range(SHARDS):
        with (shards / f"{number}.tar").open("wb") as stream:
            samples = ({"__key__": f"{number}-{member:04d}", "bin": payload} for member in range(MEMBERS))
            tar.write(stream, samples)
    rows = []
    with far_store(folder, 0.02):
        for prefix, content_type, count in (
            ("shards", "application/x-tar", SHARDS * MEMBERS),
            ("objects", None, OBJECTS),
        ):
            kept = {"cache_dir": folder / "cache" / prefix}
            far = connector_channel(folder, f"s3://bucket/{prefix}/", content_type)
            _epoch(far, kept, count)
            here = _beside(folder, prefix, content_type)
            found = interleaved(
                {
                    "ours": partial(_epoch, far, kept, count),
                    "plain read": partial(_epoch, here, {}, count)
                    if content_type
                    else partial(_plain, train_folder(folder / prefix)),
                    "limit": partial(_raw, train_folder(folder / prefix)),
                }
            )
            what = "100 MB tar shards" if content_type else "100 KB objects"
            rows.append(row(f"second epoch from cache_dir, {what}", found, "plain read", 0.9))
    return rows


def _beside(folder: Path, prefix: str, content_type: str | None) -> Environment:
    """A job whose channel is a directory of the very files that were kept: how a file was written decides how fast it is read."""
    job = mounted_job(folder / prefix, content_type)
    for number, path in enumerate(path for path in (folder / "cache" / prefix).glob("*/*") if path.is_file()):
        (train_folder(folder / prefix) / f"{number:06d}").hardlink_to(path)
    return job


def _epoch(environment: Environment, reading: dict[str, Any], expected: int) -> None:
    for _ in range(EPOCHS):
        count = exhaust(open_channel("train", environment=environment, **reading))
        if count != expected:
            raise RuntimeError(f"{count} samples, not {expected}")


def _plain(folder: Path) -> None:
    for _ in range(EPOCHS):
        for path in sorted(folder.iterdir()):
            with path.open("rb", buffering=0) as stream:
                stream.read()


def _raw(folder: Path) -> None:
    buffer = memoryview(bytearray(1 << 20))
    for _ in range(EPOCHS):
        for path in folder.iterdir():
            with path.open("rb", buffering=0) as stream:
                while stream.readinto(buffer):
                    pass
