"""The clients that a training job reads S3 with, against the embedded server: connector and rclone."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import pytest
import torch
from s3torchconnector import S3Checkpoint, S3IterableDataset, S3MapDataset, S3ReaderConstructor

from patience import PATIENCE
from served_bucket import serve

pytestmark = pytest.mark.usefixtures("credentials")

OBJECTS = {
    key: key.encode() * 1000 for key in ("a/b-c", "a/b", "a/c/d.png", "a/x y+z%20", "a/é/😀", "b", "a.txt", "a/empty")
}
OBJECTS["a/empty"] = b""
BELOW_A = [(key, OBJECTS[key]) for key in sorted(OBJECTS, key=str.encode) if key.startswith("a/")]


@dataclass(frozen=True)
class Served:
    url: str
    bucket: str

    @property
    def where(self) -> dict[str, Any]:
        return {"region": "us-east-1", "endpoint": self.url}


@pytest.fixture
def served(tmp_path: Path, credentials: None) -> Iterator[Served]:
    for key, body in OBJECTS.items():
        path = tmp_path / "s3/bucket" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    with serve(tmp_path / "s3", tmp_path / "overlay") as url:
        yield Served(url, "bucket")


def test_connector_datasets_read_all_objects(served: Served) -> None:
    iterable = S3IterableDataset.from_prefix(f"s3://{served.bucket}/a/", **served.where)
    assert [(entry.key, entry.read()) for entry in iterable] == BELOW_A
    dataset = S3MapDataset.from_prefix(f"s3://{served.bucket}/a/", **served.where)
    assert [(dataset[index].key, dataset[index].read()) for index in range(len(dataset))] == BELOW_A
    ranges = S3ReaderConstructor.range_based()
    last = S3MapDataset.from_prefix(f"s3://{served.bucket}/a/é", **served.where, reader_constructor=ranges)[0]
    last.seek(1000)
    assert last.read(500) == OBJECTS["a/é/😀"][1000:1500]


def test_connector_reads_in_workers(served: Served) -> None:
    dataset = S3IterableDataset.from_prefix(
        f"s3://{served.bucket}/a/",
        **served.where,
        transform=lambda entry: (entry.key, entry.read()),
        enable_sharding=True,
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
    assert sorted(((key, body) for key, body in loader), key=lambda pair: pair[0].encode()) == BELOW_A


@pytest.mark.parametrize("count", [10, 3_000_000])  # one part, and two
def test_connector_checkpoint_is_read_back(served: Served, count: int) -> None:
    checkpoint = S3Checkpoint(**served.where)
    uri = f"s3://{served.bucket}/checkpoints/epoch-1.pt"
    for value in (1.0, 2.0):  # the second time over the first
        with checkpoint.writer(uri) as writer:
            torch.save({"weight": torch.full((count,), value)}, writer)
    with checkpoint.reader(uri) as reader:
        assert torch.equal(torch.load(cast(IO[bytes], reader))["weight"], torch.full((count,), 2.0))


def rclone(served: Served, tmp_path: Path, command: str, path: str, *arguments: str) -> list[str]:
    remote = f":s3,provider=Other,env_auth=true,force_path_style=true,endpoint='{served.url}':{served.bucket}/{path}"
    return ["rclone", command, remote, *arguments, "--config", str(tmp_path / "rclone.conf")]


def test_rclone_lists_and_reads(served: Served, tmp_path: Path, fuse: None) -> None:
    def output(command: str, path: str, *arguments: str) -> bytes:
        line = rclone(served, tmp_path, command, path, *arguments)
        return subprocess.run(line, check=True, capture_output=True, timeout=PATIENCE).stdout

    listed = output("lsf", "a", "--recursive", "--files-only", "--format", "ps").decode().splitlines()
    assert sorted(listed) == sorted(f"{key[2:]};{len(body)}" for key, body in BELOW_A)
    assert output("cat", "a/x y+z%20") == OBJECTS["a/x y+z%20"]
    output("copy", "a", str(tmp_path / "copied"))
    copied = tmp_path / "copied"
    assert {f"a/{path.relative_to(copied)}": path.read_bytes() for path in copied.rglob("*") if path.is_file()} == dict(
        BELOW_A
    )


@contextmanager
def mounted(line: list[str], point: Path) -> Iterator[None]:
    point.mkdir()
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not point.is_mount():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "rclone did not mount within 30 s"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
        if point.is_mount():
            subprocess.run([shutil.which("fusermount3") or "fusermount", "-uz", str(point)], check=True)


def test_rclone_mount_shows_the_objects(served: Served, tmp_path: Path, fuse: None) -> None:
    point = tmp_path / "mount"
    with mounted(rclone(served, tmp_path, "mount", "a", str(point), "--read-only"), point):
        found = {f"a/{path.relative_to(point)}": path.read_bytes() for path in point.rglob("*") if path.is_file()}
        assert found == dict(BELOW_A)
        with (point / "b").open("rb") as file:
            file.seek(2500)
            assert file.read(10) == OBJECTS["a/b"][2500:2510]
    assert not point.is_mount()
