"""Every provider, with real data from a real endpoint: what exists on entering, and that nothing remains on leaving."""

from __future__ import annotations

import _thread
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deliveries import FILES, Deliver, deliveries, is_file_system, leftovers, read_files
from launcher.errors import RefusedError
from launcher.local.channels import copied
from launcher.local.channels.delivery import Delivery, provide
from launcher.local.channels.selection import S3Object
from launcher.spec.channels import KINDS
from local_jobs import namespaces
from patience import PATIENCE, wait_for
from s3_objects import client_of_job

# Each way to deliver a channel: the mode for S3, the source for others.
WAYS = [mode if source == "S3" else source for source, kind in KINDS.items() for mode in kind.PROVIDERS]


@pytest.fixture
def deliver(tmp_path: Path) -> Iterator[Deliver]:
    with deliveries(tmp_path) as make:
        yield make


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("fuse")
def test_every_provider_delivers_the_channel_and_leaves_nothing(deliver: Deliver, way: str) -> None:
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
def test_every_provider_refuses_missing_data_in_one_line_and_leaves_nothing(deliver: Deliver, way: str) -> None:
    delivery = deliver(way, {"DirectoryPath": "/gone/gone"} if is_file_system(way) else {"S3Uri": "s3://bucket/gone/"})
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
            r"input_mode File of source Dataset \(only SageMaker can read a dataset resource\); supported",
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
def test_sample_is_spread_over_the_objects(deliver: Deliver, way: str) -> None:
    delivery = deliver(way, sample=2)
    with provide(delivery):
        assert read_files(delivery.directory) == dict(list(FILES.items())[::2])


def of_hosts(
    deliver: Deliver, tmp_path: Path, way: str, names: Sequence[str] = ("train",), **changes: Any
) -> list[Delivery]:
    """The channels for two hosts in namespaces."""
    return [
        replace(
            deliver(way, host=host, hosts=("algo-1", "algo-2"), namespaces=True, overlays=True, **changes),
            channel={**deliver(way).channel, "ChannelName": name},
            data_dir=tmp_path / host / "data",
            scratch=tmp_path / host / name,
        )
        for host in ("algo-1", "algo-2")
        for name in names
    ]


@pytest.mark.linux
def test_hosts_share_the_data_folder_under_overlays_of_their_own(deliver: Deliver, tmp_path: Path) -> None:
    namespaces()
    deliveries = of_hosts(deliver, tmp_path, "File")
    with provide(*deliveries) as binds:
        assert [bind.source for bind in binds] == [tmp_path / "data/s3/bucket/train"] * 2
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
    deliveries = of_hosts(deliver, tmp_path, "File")
    with provide(*deliveries) as binds:
        assert binds == []
        for delivery in deliveries:
            assert read_files(delivery.directory) == expected
            assert not [path for path in delivery.directory.rglob("*") if path.is_symlink() or path.name == "empty"]


@pytest.mark.usefixtures("fuse")
@pytest.mark.parametrize("sample", [None, 2])
def test_each_host_has_a_mount_of_each_channel(deliver: Deliver, tmp_path: Path, sample: int | None) -> None:
    deliveries = of_hosts(deliver, tmp_path, "FastFile", ("train", "val"), sample=sample)
    with provide(*deliveries) as binds:
        assert binds == []
        for delivery in deliveries:
            assert read_files(delivery.directory) == dict(list(FILES.items())[::sample])
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_copy_reports_its_bytes_while_copying(deliver: Deliver) -> None:
    counts: list[int] = []
    with provide(deliver("File", on_bytes=counts.append)):
        assert sum(counts) == sum(map(len, FILES.values()))


def test_interrupted_copy_leaves_nothing(deliver: Deliver) -> None:
    """Ctrl-C raises in the main thread while the copying threads are in the middle of a file."""
    go_on, calls = threading.Event(), itertools.count()

    def interrupt(count: int) -> None:
        if next(calls) == 0:  # a second one would come in the middle of the cleaning up
            _thread.interrupt_main()
        go_on.wait(PATIENCE)

    delivery = deliver("File", on_bytes=interrupt)
    threading.Timer(0.2, go_on.set).start()
    with pytest.raises(KeyboardInterrupt), provide(delivery):
        pytest.fail("entered")
    assert leftovers(delivery) == []


def test_ctrl_c_need_not_wait_for_a_store_that_hangs(deliver: Deliver) -> None:
    answered, calls = threading.Event(), itertools.count()

    def hang(count: int) -> None:
        if next(calls) == 0:
            os.kill(os.getpid(), signal.SIGINT)
        answered.wait(PATIENCE)

    delivery, begun = deliver("File", on_bytes=hang), time.monotonic()
    delivery = replace(delivery, store=replace(delivery.store, remote=True))
    with pytest.raises(KeyboardInterrupt), provide(delivery):
        pytest.fail("entered")
    assert time.monotonic() < begun + PATIENCE
    answered.set()
    wait_for(lambda: leftovers(delivery) == [])


def test_copy_never_writes_through_a_link_or_over_files(deliver: Deliver, tmp_path: Path) -> None:
    delivery = deliver("File")
    delivery.data_dir.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    delivery.directory.symlink_to(tmp_path / "outside")
    with pytest.raises(RefusedError, match=r"cannot make .*/train"), provide(delivery):
        pytest.fail("entered")
    assert list((tmp_path / "outside").iterdir()) == []
    assert [path.name for path in delivery.data_dir.iterdir()] == ["train"]


def test_key_too_long_for_a_file_name_is_refused_and_leaves_nothing(deliver: Deliver) -> None:
    delivery = deliver("File")
    long = "x" * 200
    client_of_job(delivery.store.environ).put_object(Bucket="bucket", Key=f"train/{long}/y", Body=b"")
    with provide(delivery):
        assert (delivery.directory / long / "y").is_file()
    objects = [S3Object("bucket", "train/a.txt", 5, "x" * 300)]
    with (
        pytest.raises(RefusedError, match=r"train/a\.txt: cannot be written"),
        copied.copied(delivery, objects),
    ):
        pytest.fail("entered")
    assert leftovers(delivery) == []
