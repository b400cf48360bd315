"""Deliveries of a channel of a local run, from real files, and what providers must not leave."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher.local.channels.delivery import Delivery
from launcher.local.channels.stores import embedded_store
from launcher.spec.channels import KINDS

FILES = {"a.txt": b"first", "sub dir/b,ü.bin": os.urandom(70_000), "sub dir/deep/c": b"", "z": b"last"}


FILE_SYSTEM = "fs-0123456789abcdef0"
Deliver = Callable[..., Delivery]


def is_file_system(way: str) -> bool:
    """Whether a way to deliver a channel (see `deliveries`) is a kind of file system."""
    return way in KINDS and KINDS[way].MEMBER == "FileSystemDataSource"


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def leftovers(delivery: Delivery) -> list[str]:
    threads = [each.name for each in threading.enumerate() if re.match(r"pipe-|.*\(settle\)", each.name)]
    return threads + sorted(str(path) for path in delivery.data_dir.glob("**/*"))


@contextmanager
def deliveries(tmp_path: Path) -> Iterator[Deliver]:
    """Yield a function that makes deliveries of channel `train` from FILES, in S3 and in a file system."""
    write_files(tmp_path / "data/s3/bucket/train", FILES)
    write_files(tmp_path / "data/fs/train", FILES)

    with embedded_store(tmp_path / "data", tmp_path / "overlay") as store:

        def make(way: str, source: dict[str, Any] | None = None, **changes: Any) -> Delivery:
            s3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/train/", "S3DataDistributionType": "FullyReplicated"}
            files = {"FileSystemId": FILE_SYSTEM, "FileSystemType": way, "DirectoryPath": "/train"}
            data_source: dict[str, Any] = {"S3DataSource": {**s3, **(source or {})}}
            if is_file_system(way):
                data_source = {"FileSystemDataSource": {**files, "FileSystemAccessMode": "ro", **(source or {})}}
            delivery = Delivery(
                channel={
                    "ChannelName": "train",
                    "InputMode": way if "S3DataSource" in data_source else "File",
                    "DataSource": data_source,
                },
                host="algo-1",
                hosts=("algo-1",),
                data_dir=tmp_path / "ml/input/data",
                scratch=tmp_path / "scratch",
                store=store,
                file_systems={FILE_SYSTEM: tmp_path / "data/fs"},
            )
            return Delivery(**{**vars(delivery), **changes})

        yield make
