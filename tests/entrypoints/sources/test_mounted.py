"""Channels that are a directory: which files are read, in which order, and what is skipped."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from object_channels import fill, on_disk, read
from sagemaker_channels.epoch.channel import find_channel, open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.samples.class_folders import find_classes
from sagemaker_channels.sources import agreement, mounted
from sagemaker_channels.sources.remote_file import RemoteFile

KEYS = ["a-b/1", "a.b", "a/1", "a/b/c", "a0", ".hidden", "Z", "ü/é", "sp ace#1"]


def test_directory_is_read_in_the_order_of_s3(tmp_path: Path) -> None:
    fill(tmp_path, KEYS)
    (tmp_path / "empty").mkdir()
    assert read(on_disk(tmp_path)) == [(key, key.encode()) for key in sorted(KEYS, key=str.encode)]


names = st.text("a.b/-", min_size=1, max_size=6).filter(lambda name: all(part.strip(".") for part in name.split("/")))


@given(st.sets(names, min_size=1, max_size=12))
def test_any_directory_is_sorted_by_whole_paths(tmp_path_factory: pytest.TempPathFactory, keys: set[str]) -> None:
    keys = {key for key in keys if not any(other.startswith(key + "/") for other in keys)}
    directory = tmp_path_factory.mktemp("tree")
    fill(directory, list(keys))
    assert list(mounted.objects(on_disk(directory))) == sorted(keys, key=str.encode)


def test_directory_that_cannot_be_read_is_named_as_text(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f": '{tmp_path}/gone'$"):
        list(mounted.walk(os.fsencode(tmp_path / "gone")))


def test_directory_that_cannot_be_looked_at_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """Path.is_dir raises an error then, as for one below a folder without rights, and since Python 3.14 returns False."""
    long = tmp_path / ("a" * 300)
    for use in (open_channel, lambda it: [*mounted.objects(on_disk(it))], lambda it: [*mounted.top_names(on_disk(it))]):
        with pytest.raises(
            ChannelError, match=r"channel '.*': /.*/aaa+ cannot be read: File name too long; use another"
        ):
            use(long)


def test_shards_of_a_directory_hold_each_file_once(tmp_path: Path) -> None:
    fill(tmp_path, KEYS)
    parts = [read(on_disk(tmp_path), Shard(index, 4)) for index in range(4)]
    assert sorted(item for part in parts for item in part if item[0]) == sorted(read(on_disk(tmp_path)))


@pytest.fixture
def published() -> Iterator[dict[str, str]]:
    """What the hosts of a job have stored."""
    stored: dict[str, str] = {}
    agreement.compare_by(stored.setdefault)
    yield stored
    agreement.compare_by(lambda name, text: None)


def test_files_that_differ_between_hosts_are_an_error_unless_each_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: dict[str, str]
) -> None:
    for host, names in (("one", ["a", "b", "c"]), ("two", ["a", "c"])):
        fill(tmp_path / host, names)
    shards = [replace(on_disk(tmp_path / host, "File", "ShardedByS3Key"), hosts=2) for host in ("one", "two")]
    assert [len(mounted.objects(shard)) for shard in shards] == [3, 2]
    assert not published
    for host in ("algo-1", "algo-2"):
        monkeypatch.setenv("SM_CURRENT_HOST", host)
        assert len(mounted.objects(on_disk(tmp_path / "one"))) == 3
    with pytest.raises(ChannelError, match=r"'train': the hosts do not list the same objects: 3 .*number 2, 'c' on"):
        len(mounted.objects(on_disk(tmp_path / "two")))


@pytest.mark.usefixtures("published")
def test_folder_that_is_named_again_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-1")
    fill(tmp_path, ["data/a"])
    first = find_channel(load_environment(), tmp_path / "data")
    assert len(mounted.objects(first)) == 1
    fill(tmp_path, ["data/b"])
    with pytest.raises(ChannelError, match="folder"):
        find_classes(tmp_path / "data")  # as rank 0 alone may do
    again = find_channel(load_environment(), tmp_path / "data")
    assert again.named == 1  # as on the other ranks
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-2")
    assert len(mounted.objects(again)) == 2
    with pytest.raises(ChannelError, match=r"the hosts do not list the same objects: 1 on algo-1, .* and 2 on algo-2"):
        len(mounted.objects(first))


def samples_of_epochs(folder: Path, epochs: list[int]) -> list[int]:
    environment = replace(load_environment(folder, {}), channels={"train": on_disk(folder)})
    return [len(list(open_channel("train", epoch, environment=environment))) for epoch in epochs]


@pytest.mark.usefixtures("published")
def test_folder_that_changes_between_epochs_is_compared_within_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-1")
    fill(tmp_path, ["a"])
    assert samples_of_epochs(tmp_path, [0]) == [1]
    fill(tmp_path, ["b"])
    assert samples_of_epochs(tmp_path, [0, 1]) == [2, 2]
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-2")
    assert samples_of_epochs(tmp_path, [1]) == [2]
    fill(tmp_path, ["c"])
    said = r"2 on algo-1.* and 3 on algo-2.* within an epoch, here 1, and begin each by set_epoch"
    with pytest.raises(ChannelError, match=said):
        samples_of_epochs(tmp_path, [1])


@pytest.mark.linux
def test_file_name_that_is_not_unicode_is_read(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.bin")).write_bytes(b"x")
    assert read(on_disk(tmp_path)) == [("\udcff.bin", b"x")]


def test_links_are_followed_unless_their_files_are_read_already(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = tmp_path / "pool"
    fill(pool, ["x", "2024/y", "2024/z"])
    (pool / "latest").symlink_to("2024")
    (pool / "again").symlink_to(tmp_path / "data")
    root = tmp_path / "data"
    fill(root, ["a", "d/b", "d0"])
    (root / "inside").symlink_to("d/b")
    (root / "outside").symlink_to(pool / "x")
    (root / "d" / "pool").symlink_to(pool)
    (root / "c").symlink_to(pool / "latest")
    os.mkfifo(root / "pipe")
    for name, target in {
        "loop": ".",
        "up": "..",
        "v": "d",
        "dangling": "../nothing",
        "itself": "itself",
        "below_a_file": "a/b",
        "to_pipe": "pipe",
    }.items():
        (root / name).symlink_to(target)
    with socket.socket(socket.AF_UNIX) as server, caplog.at_level(logging.WARNING):
        server.bind(str(root / "socket"))
        found = read(on_disk(root))
    assert found == [
        ("a", b"a"),
        ("c/y", b"2024/y"),
        ("c/z", b"2024/z"),
        ("d/b", b"d/b"),
        ("d/pool/2024/y", b"2024/y"),
        ("d/pool/2024/z", b"2024/z"),
        ("d/pool/x", b"x"),
        ("d0", b"d0"),
        ("inside", b"d/b"),
        ("outside", b"x"),
    ]
    logged = {
        Path(str(record.args[0])).name: str(record.args[1]).replace(str(tmp_path), "")
        for record in caplog.records
        if isinstance(record.args, tuple)
    }
    assert logged == {
        "again": "a link to /data, which is read under its own name or contains it",
        "latest": "a link to /pool/2024, which is read under its own name or contains it",
        "loop": "a link to /data, which is read under its own name or contains it",
        "up": "a link to , which is read under its own name or contains it",
        "v": "a link to /data/d, which is read under its own name or contains it",
        "dangling": "a link to a missing target, ../nothing",
        "itself": "a link to a missing target, itself",
        "below_a_file": "a link to a missing target, a/b",
        "pipe": "neither a file nor a directory",
        "socket": "neither a file nor a directory",
        "to_pipe": "neither a file nor a directory",
    }


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
@pytest.mark.parametrize("folders", [[], ["deep/er", ".hidden"]])
def test_folder_without_files_is_refused_unless_other_hosts_have_some(
    tmp_path: Path, folders: list[str], distribution: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    of_one = replace(on_disk(tmp_path, "FastFile", distribution), hosts=1)
    with pytest.raises(ChannelError, match=r"'train': no file in .*, nor below it; correct the channel's s3_uri.*'/'"):
        read(of_one)
    of_two = replace(of_one, hosts=2, mode="File")
    if distribution == "FullyReplicated":
        with pytest.raises(
            ChannelError, match=r"'train': no file in .*; correct the channel's s3_uri, or directory_path"
        ):
            read(of_two, Shard(1, 2))
        return
    assert [read(of_two), read(of_two, Shard(1, 2))] == [[], []]
    assert capfd.readouterr().err.count("no file in") == 1
    (tmp_path / "only").write_bytes(b"one")
    assert [read(of_two), read(of_two, Shard(1, 2))] == [[("only", b"one")], []], "a shard may always be empty"
    assert read(replace(of_one, distribution="FullyReplicated"), Shard(3, 4)) == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("instead", ["nothing", "fifo", "directory"])
def test_path_that_is_no_longer_a_file_raises(tmp_path: Path, instead: str) -> None:
    fill(tmp_path, ["a", "b"])
    names = list(mounted.objects(on_disk(tmp_path)))
    (tmp_path / "b").unlink()
    if instead == "fifo":
        os.mkfifo(tmp_path / "b")
    elif instead == "directory":
        (tmp_path / "b").mkdir()
    streams = mounted.open_objects(on_disk(tmp_path), names)
    key, stream = next(streams)
    stream.close()
    assert key == "a"
    with pytest.raises(ChannelError, match=f"channel 'train': object 'b': cannot be read: .*{tmp_path}/b"):
        next(streams)
    with pytest.raises(OSError, match=r"No such file|Is a directory|Illegal seek"):
        RemoteFile(str(tmp_path / "b"), "b").fetch(0, 10)


def test_channel_that_is_a_link_is_read(tmp_path: Path) -> None:
    fill(tmp_path / "real", ["a"])
    (tmp_path / "link").symlink_to("real")
    assert read(on_disk(tmp_path / "link")) == [("a", b"a")]


def test_missing_directory_is_refused_unless_other_hosts_have_it(tmp_path: Path) -> None:
    with pytest.raises(
        ChannelError, match=r"channel 'train': .*/none is not a directory, which input mode FastFile needs"
    ):
        read(on_disk(tmp_path / "none", "FastFile"))
    # A host can be left without any object.
    sharded = on_disk(tmp_path / "none", distribution="ShardedByS3Key")
    assert read(sharded) == read(replace(sharded, hosts=2)) == []
    with pytest.raises(ChannelError, match=r"/none is not a directory, which input mode File needs"):
        read(replace(sharded, hosts=1))
