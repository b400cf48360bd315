"""Every way of arriving, with real data from a real endpoint: what is there on entering, and that nothing is on leaving."""

from __future__ import annotations

import _thread
import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import RefusedError
from launcher.local.data.delivery import Delivery
from launcher.local.data.selection import S3Object
from launcher.local.data.stores import embedded_store, s3_client
from launcher.local.providers import copied, mounted, provide
from launcher.local.providers.fuse_keeper import is_mounted
from launcher.spec.channels import KINDS

FILES = {"a.txt": b"first", "sub dir/b,ü.bin": os.urandom(70_000), "sub dir/deep/c": b"", "z": b"last"}
FILE_SYSTEM = "fs-0123456789abcdef0"
# Each way to deliver a channel: the mode for S3, the source for others.
WAYS = [mode if source == "S3" else source for source, kind in KINDS.items() for mode in kind.PROVIDERS]
Deliver = Callable[..., Delivery]


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def deliver(tmp_path: Path) -> Iterator[Deliver]:
    """Makes deliveries of channel `train` from FILES in S3 (`s3://bucket/train/`) and in a file system (`/train`)."""
    write_files(tmp_path / "data/s3/bucket/train", FILES)
    write_files(tmp_path / "data/fs/train", FILES)

    with embedded_store(tmp_path / "data", tmp_path / "overlay") as store:

        def make(way: str, source: dict[str, Any] | None = None, **changes: Any) -> Delivery:
            s3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/train/", "S3DataDistributionType": "FullyReplicated"}
            files = {"FileSystemId": FILE_SYSTEM, "FileSystemType": way, "DirectoryPath": "/train"}
            data_source: dict[str, Any] = {"S3DataSource": {**s3, **(source or {})}}
            if way in ("EFS", "FSxLustre"):
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


def leftovers(delivery: Delivery) -> list[str]:
    threads = [each.name for each in threading.enumerate() if each.name.startswith(("pipe-", "copy-"))]
    return threads + sorted(str(path) for path in delivery.data_dir.glob("**/*"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("fuse")
def test_every_provider_brings_the_channel_and_leaves_nothing(deliver: Deliver, way: str) -> None:
    delivery = deliver(way)
    with provide(delivery) as binds:
        if way == "Pipe":
            assert (delivery.data_dir / "train_0").read_bytes() == b"".join(FILES[name] for name in sorted(FILES))
        else:
            folder = binds[0].source if binds else delivery.directory
            assert read_files(folder) == FILES
    assert leftovers(delivery) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("fuse")
def test_every_provider_leaves_nothing_when_a_later_step_fails(deliver: Deliver, way: str) -> None:
    delivery = deliver(way)
    with pytest.raises(ZeroDivisionError), ExitStack() as stack:
        stack.enter_context(provide(delivery))
        _ = 1 / 0
    assert leftovers(delivery) == []


@pytest.mark.parametrize("way", WAYS)
def test_every_provider_refuses_what_is_not_there_in_one_line_and_leaves_nothing(deliver: Deliver, way: str) -> None:
    delivery = deliver(
        way, {"DirectoryPath": "/gone/gone"} if way in ("EFS", "FSxLustre") else {"S3Uri": "s3://bucket/gone/"}
    )
    with pytest.raises(RefusedError, match="gone") as caught, provide(delivery):
        pytest.fail("entered")
    assert "\n" not in str(caught.value)
    assert leftovers(delivery) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"InputMode": "Teleport"},
            "input_mode Teleport of source S3; supported: S3 by File, FastFile, Pipe, EFS by File, ",
        ),
        ({"DataSource": {"Tape": {}}}, r"the DataSource \{'Tape': \{\}\}; supported"),
        (
            {"DataSource": {"DatasetSource": {}}},
            r"source Dataset \(only SageMaker can read a dataset resource\); supported",
        ),
    ],
)
def test_provide_refuses_channels_without_a_provider(deliver: Deliver, change: dict[str, Any], message: str) -> None:
    delivery = deliver("File")
    delivery = replace(delivery, channel={**delivery.channel, **change})
    with pytest.raises(RefusedError, match=f"channel 'train': local runs do not support {message}"), provide(delivery):
        pytest.fail("entered")


@pytest.mark.parametrize("way", ["File", "FastFile"])
@pytest.mark.usefixtures("fuse")
def test_sharded_hosts_get_every_file_once(deliver: Deliver, way: str) -> None:
    hosts = tuple(f"algo-{number}" for number in range(1, 6))
    shares = []
    for host in hosts:
        delivery = deliver(way, {"S3DataDistributionType": "ShardedByS3Key"}, host=host, hosts=hosts)
        with provide(delivery):
            shares.append(read_files(delivery.directory))
    assert sum(map(len, shares)) == len(FILES)
    assert {name: content for share in shares for name, content in share.items()} == FILES
    assert shares[-1] == {}  # five hosts, four objects


@pytest.mark.parametrize("way", ["File", "FastFile"])
@pytest.mark.usefixtures("fuse")
def test_sample_takes_the_first_objects(deliver: Deliver, way: str) -> None:
    delivery = deliver(way, sample=2)
    with provide(delivery):
        assert read_files(delivery.directory) == dict(list(FILES.items())[:2])


def of_hosts(
    deliver: Deliver, tmp_path: Path, way: str, names: Sequence[str] = ("train",), **changes: Any
) -> list[Delivery]:
    """The channels for two hosts in namespaces."""
    return [
        replace(
            deliver(way, host=host, hosts=("algo-1", "algo-2"), namespaces=True, **changes),
            channel={**deliver(way).channel, "ChannelName": name},
            data_dir=tmp_path / host / "data",
            scratch=tmp_path / host / name,
        )
        for host in ("algo-1", "algo-2")
        for name in names
    ]


@pytest.mark.parametrize("sample", [None, 2])
def test_hosts_share_one_folder_of_files_under_overlays(deliver: Deliver, tmp_path: Path, sample: int | None) -> None:
    """The data folder itself if the channel is all of it, else one copy."""
    deliveries = of_hosts(deliver, tmp_path, "File", sample=sample)
    with provide(*deliveries) as binds:
        assert len({bind.source for bind in binds}) == 1
        assert (binds[0].source == tmp_path / "data/s3/bucket/train") is (sample is None)
        assert read_files(binds[0].source) == dict(list(FILES.items())[:sample])
        assert [bind.target for bind in binds] == [delivery.directory for delivery in deliveries]
        assert len({bind.written for bind in binds} - {None}) == 2
    assert [path for path in tmp_path.glob("algo-*/**/*") if path.is_file()] == []


@pytest.mark.parametrize("spoil", ["link", "empty folder", "beside"])
def test_folder_that_holds_more_than_the_channel_is_copied(deliver: Deliver, tmp_path: Path, spoil: str) -> None:
    train = tmp_path / "data/s3/bucket/train"
    if spoil == "link":
        (train / "link").symlink_to("a.txt")
    elif spoil == "empty folder":
        (train / "empty").mkdir()
    else:
        os.mkfifo(train / "fifo")
    expected = {**FILES, "link": FILES["a.txt"]} if spoil == "link" else FILES
    with provide(*of_hosts(deliver, tmp_path, "File")) as binds:
        assert binds[0].source != train
        assert read_files(binds[0].source) == expected
        assert not [path for path in binds[0].source.rglob("*") if path.is_symlink() or path.name == "empty"]


@pytest.mark.usefixtures("fuse")
def test_one_mount_serves_all_channels_and_hosts(deliver: Deliver, tmp_path: Path) -> None:
    deliveries = of_hosts(deliver, tmp_path, "FastFile", ("train", "val"))
    with provide(*deliveries) as binds:
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(tmp_path) in line]
        assert len(mounts) == 1
        assert [bind.target for bind in binds] == [delivery.directory for delivery in deliveries]
        assert [read_files(bind.source) for bind in binds] == [FILES] * 4
    with provide(*(replace(delivery, sample=2) for delivery in deliveries)) as binds:
        assert [read_files(bind.source) for bind in binds] == [dict(list(FILES.items())[:2])] * 4


def test_copy_tells_its_bytes_as_they_come(deliver: Deliver) -> None:
    counts: list[int] = []
    with provide(deliver("File", on_bytes=counts.append)):
        assert sum(counts) == sum(map(len, FILES.values()))


def test_interrupted_copy_leaves_nothing(deliver: Deliver) -> None:
    """Ctrl-C raises in the main thread while the copying threads are in the middle of a file."""
    go_on, calls = threading.Event(), itertools.count()

    def interrupt(count: int) -> None:
        if next(calls) == 0:  # a second one would come in the middle of the cleaning up
            _thread.interrupt_main()
        go_on.wait(10)

    delivery = deliver("File", on_bytes=interrupt)
    threading.Timer(0.2, go_on.set).start()
    with pytest.raises(KeyboardInterrupt), provide(delivery):
        pytest.fail("entered")
    assert leftovers(delivery) == []


def test_copy_never_writes_through_a_link_or_over_what_is_there(deliver: Deliver, tmp_path: Path) -> None:
    delivery = deliver("File")
    delivery.data_dir.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    delivery.directory.symlink_to(tmp_path / "outside")
    with pytest.raises(RefusedError, match=r"cannot make .*/train"), provide(delivery):
        pytest.fail("entered")
    assert list((tmp_path / "outside").iterdir()) == []
    assert [path.name for path in delivery.data_dir.iterdir()] == ["train"]


def test_key_that_no_disk_takes_is_refused_and_leaves_nothing(deliver: Deliver) -> None:
    delivery = deliver("File")
    long = "x" * 200
    s3_client(delivery.store.environ).put_object(Bucket="bucket", Key=f"train/{long}/y", Body=b"")
    with provide(delivery):
        assert (delivery.directory / long / "y").is_file()
    objects = [S3Object("bucket", "train/a.txt", 5, "x" * 300)]
    with (
        pytest.raises(RefusedError, match=r"train/a\.txt: cannot be written"),
        copied.copied(delivery, objects),
    ):
        pytest.fail("entered")
    assert leftovers(delivery) == []


@pytest.mark.usefixtures("fuse")
def test_mount_is_live_read_only_lazy_and_seen_in_a_namespace(deliver: Deliver) -> None:
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    with provide(delivery):
        assert is_mounted(delivery.directory.resolve())
        with pytest.raises(OSError, match="Read-only"):
            (delivery.directory / "new").touch()
        # Written behind its back into a file that was never opened: a copy would show the old content.
        s3_client(delivery.store.environ).put_object(Bucket="bucket", Key="train/a.txt", Body=b"newer")
        command = ["unshare", "-Urm", "cat", str(delivery.directory / "a.txt")]
        inside = subprocess.run(command, capture_output=True, check=False)
        assert inside.stdout == b"newer" or inside.stderr.startswith(b"unshare: ")  # a machine without namespaces
    assert not is_mounted(delivery.directory.resolve())
    assert warnings == []


@pytest.mark.usefixtures("fuse")
def test_mount_goes_although_a_file_in_it_is_open(deliver: Deliver) -> None:
    delivery = deliver("FastFile")
    with provide(delivery):
        opened = os.open(delivery.directory / "a.txt", os.O_RDONLY)
    assert leftovers(delivery) == []
    with pytest.raises(OSError, match="not connected"):
        os.close(opened)


@pytest.mark.usefixtures("fuse")
def test_mount_whose_program_dies_is_no_empty_directory_and_goes(deliver: Deliver) -> None:
    delivery = deliver("FastFile")
    with provide(delivery):
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"rclone") and os.fsencode(delivery.directory.resolve()) in words:
                    os.kill(int(process.name), signal.SIGKILL)
        with pytest.raises(OSError, match=r"not connected|connection abort|Input/output error"):
            while True:  # until the kernel knows it
                list(delivery.directory.iterdir())
    assert leftovers(delivery) == []


def test_without_a_tool_fast_file_is_a_copy_that_says_what_to_install(deliver: Deliver) -> None:
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    with mounted.provide(delivery, which=lambda name: None):
        assert read_files(delivery.directory) == FILES
        assert not is_mounted(delivery.directory.resolve())
    assert len(warnings) == 1
    assert "FastFile is a copy here" in warnings[0]
    assert "apt-get install fuse3 rclone" in warnings[0]
    assert leftovers(delivery) == []


@pytest.mark.usefixtures("fuse")
def test_tool_that_fails_gives_way_to_the_copy_and_is_quoted(deliver: Deliver, tmp_path: Path) -> None:
    broken = tmp_path / "mount-s3"
    broken.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 7\n")
    broken.chmod(0o755)
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    with mounted.provide(delivery, which=lambda name: str(broken) if name == "mount-s3" else None):
        assert read_files(delivery.directory) == FILES
    assert "mount-s3 ended with exit code 7 (no such luck" in warnings[0]
    assert leftovers(delivery) == []


# What mount-s3 is told, done by rclone: no package index has mount-s3, but its command line can be tried.
MOUNT_S3 = """#!/bin/sh
while [ $# -gt 2 ]; do
    case $1 in --prefix) prefix=$2; shift ;; --endpoint-url) url=$2; shift ;; --region) region=$2; shift ;; esac
    shift
done
RCLONE_CONFIG=/dev/null RCLONE_S3_ENV_AUTH=true RCLONE_S3_ENDPOINT=$url RCLONE_S3_REGION=$region \\
    exec rclone mount --read-only ":s3:$1/$prefix" "$2"
"""


@pytest.mark.usefixtures("fuse")
def test_tool_that_cannot_select_shows_a_share_as_links(deliver: Deliver, tmp_path: Path) -> None:
    script = tmp_path / "mount-s3"
    script.write_text(MOUNT_S3)
    script.chmod(0o755)
    warnings: list[str] = []
    delivery = deliver("FastFile", sample=2, on_warning=warnings.append)
    with mounted.provide(delivery, which=lambda name: str(script) if name == "mount-s3" else None):
        assert read_files(delivery.directory) == dict(list(FILES.items())[:2])
        (delivery.directory / "by the job").touch()
    assert ["its files are links" in warning for warning in warnings] == [True]
    assert leftovers(delivery) == []


@pytest.mark.usefixtures("fuse")
def test_name_that_the_tool_would_respell_makes_it_a_copy(deliver: Deliver) -> None:
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    s3_client(delivery.store.environ).put_object(Bucket="bucket", Key="train/y\n", Body=b"odd")
    with provide(delivery):
        assert read_files(delivery.directory) == {**FILES, "y\n": b"odd"}
    assert "rclone does not show 'y\\n'" in warnings[0]


@pytest.mark.parametrize(
    ("uri", "works"), [("s3://bucket/train", True), ("s3://bucket/tra", False), ("s3://bucket/train/a.txt", False)]
)
@pytest.mark.usefixtures("fuse")
def test_fast_file_takes_folders_only(deliver: Deliver, uri: str, works: bool) -> None:
    warnings: list[str] = []
    delivery = deliver("FastFile", {"S3Uri": uri}, on_warning=warnings.append)
    if works:
        with provide(delivery):
            assert read_files(delivery.directory) == FILES
        assert "end it with '/'" in warnings[0]
    else:
        with pytest.raises(RefusedError, match="needs a folder"), provide(delivery):
            pytest.fail("entered")


def test_fast_file_takes_no_manifest(deliver: Deliver) -> None:
    with (
        pytest.raises(RefusedError, match="S3Prefix only, not ManifestFile"),
        provide(deliver("FastFile", {"S3DataType": "ManifestFile"})),
    ):
        pytest.fail("entered")
