"""Files behind a FUSE mount of our S3, read ahead: the same samples as from a disk."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.local.channels.mounted import View
from launcher.local.channels.mounted import mounted as mounted_by_rclone
from launcher.local.s3_server.http_server import Answer, Request, Response
from launcher.s3.uri import S3Location
from object_channels import streams_of
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources import mounted
from sagemaker_channels.sources.remote_file import file_system, is_remote
from served_bucket import serve

pytestmark = pytest.mark.skipif(
    not (shutil.which("rclone") and Path("/dev/fuse").exists()), reason="needs rclone and FUSE"
)

WHOLE = Shard()


SPEAKING = threading.Event()  # while it is not set, the mount's store does not answer
SPEAKING.set()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A folder, and the same folder behind a mount whose requests take 5 ms."""
    root = tmp_path_factory.mktemp("far").resolve()
    folder = root / "s3" / "bucket" / "data"
    for number in range(40):
        file = folder / f"{number % 7}" / f"{number:03d}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(number * 1000))
    (folder / "big").write_bytes(os.urandom(5_000_001))
    (folder / "later").write_bytes(bytes(100))
    (root / "mount").mkdir()

    def silenced(answer: Answer) -> Answer:
        def late(request: Request) -> Response:
            SPEAKING.wait()
            time.sleep(0.005)
            return answer(request)

        return late

    with serve(root / "s3", root / "overlay", silenced) as endpoint:
        keys = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        with mounted_by_rclone(View(S3Location("bucket", "data/"), root / "mount", root, keys)):
            yield folder, root / "mount"


def read(path: Path, shard: Shard = WHOLE) -> list[tuple[str | None, bytes]]:
    channel = Channel("train", "FastFile", None, "FullyReplicated", "None", path)
    found = []
    for key, stream in streams_of(channel, shard):
        found.append((key, stream.read()))
        stream.close()
    return found


def test_mount_is_remote_and_a_disk_is_not(far: tuple[Path, Path]) -> None:
    disk, mount = far
    assert (is_remote(disk), is_remote(mount)) == (False, True)
    assert file_system(mount / "0").startswith("fuse")


def test_remote_files_are_the_same_in_the_same_order(far: tuple[Path, Path]) -> None:
    disk, mount = far
    assert read(mount) == [(str(key), (disk / str(key)).read_bytes()) for key in mounted.objects(_channel(disk))]
    assert read(mount, Shard(1, 3)) == read(disk)[1::3]


def test_remote_file_can_be_sought(far: tuple[Path, Path]) -> None:
    disk, mount = far
    data = (disk / "big").read_bytes()
    [(_, stream)] = mounted.open_objects(_channel(mount), ["big"])
    assert stream.seek(-1000, 2) == len(data) - 1000  # type: ignore[attr-defined]
    assert stream.read() == data[-1000:]
    stream.seek(100)  # type: ignore[attr-defined]
    assert stream.read() == data[100:]
    stream.close()


def test_leaving_early_leaves_no_thread_and_no_open_file(far: tuple[Path, Path]) -> None:
    _, mount = far
    streams = streams_of(_channel(mount))
    for _, stream in streams:
        stream.read(1)
        stream.close()
        break
    streams.close()  # type: ignore[attr-defined]
    left = [thread for thread in threading.enumerate() if thread.name in ("prefetch", "listing")]
    for thread in left:  # in a request that takes longer than `close` waits, on a busy machine
        thread.join(PATIENCE)
    assert not [thread for thread in left if thread.is_alive()]
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [path for path in opened if path.startswith(str(mount))]


def test_silent_mount_raises(far: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    _, mount = far
    monkeypatch.setenv(contract.READ_WAIT_VARIABLE, "0.5")
    paths = ["later"]  # which no other test has read before
    assert "later" in mounted.objects(_channel(mount))
    SPEAKING.clear()
    try:
        [(_, stream)] = mounted.open_objects(_channel(mount), paths)
        with pytest.raises(
            ChannelError, match=f"'train': {mount} has sent nothing for . s.*the reader waits for object 'later'"
        ):
            stream.read()
        stream.close()
    finally:
        SPEAKING.set()
    for thread in threading.enumerate():
        if thread.name == "prefetch":
            thread.join(PATIENCE)
    assert read(mount, Shard(41, 42)) == [("later", bytes(100))]


def _channel(path: Path) -> Channel:
    return Channel("train", "FastFile", None, "FullyReplicated", "None", path)
