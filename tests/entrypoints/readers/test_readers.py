"""How bytes arrive: a directory, a FIFO, S3 through the connector; each gives the same objects in the same order."""

from __future__ import annotations

import io
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import boto3
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from entrypoints.errors import ChannelError
from entrypoints.job.environment import Channel
from entrypoints.order.sharding import EVERYTHING, Shard
from entrypoints.readers import READERS, fifo, mounted, reader_of, s3
from entrypoints.readers.remote_file import RemoteFile
from entrypoints.records import format_of
from entrypoints.records.archives import tar_write, zip_write
from launcher.local.s3_server import serve

REPOSITORY = Path(__file__).parents[3]
KEYS = ["a-b/1", "a.b", "a/1", "a/b/c", "a0", ".hidden", "Z", "ü/é", "sp ace#1"]


def channel(path: Path, mode: str = "File", distribution: str = "FullyReplicated") -> Channel:
    return Channel("train", mode, None, distribution, "None", path)


def connector(uri: str, style: str = "iterable", max_objects: int | None = None) -> Channel:
    return Channel("train", "S3Connector", None, "FullyReplicated", "None", Path("/none"), uri, style, max_objects)


def fill(directory: Path, keys: list[str]) -> None:
    for key in keys:
        file = directory / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(key.encode())


def read(source: Channel, shard: Shard = EVERYTHING, epoch: int = 0) -> list[tuple[str | None, bytes]]:
    found = []
    for key, stream in reader_of(source).open_streams(source, epoch, shard):
        found.append((key, stream.read()))
        stream.close()
    return found


# A directory


def test_a_directory_in_the_order_of_s3(tmp_path: Path) -> None:
    fill(tmp_path, KEYS)
    (tmp_path / "empty").mkdir()
    assert read(channel(tmp_path)) == [(key, key.encode()) for key in sorted(KEYS, key=str.encode)]


names = st.text("a.b/-", min_size=1, max_size=6).filter(lambda name: all(part.strip(".") for part in name.split("/")))


@given(st.sets(names, min_size=1, max_size=12))
def test_any_directory_is_sorted_by_whole_paths(tmp_path_factory: pytest.TempPathFactory, keys: set[str]) -> None:
    keys = {key for key in keys if not any(other.startswith(key + "/") for other in keys)}
    directory = tmp_path_factory.mktemp("tree")
    fill(directory, list(keys))
    assert list(mounted.objects(channel(directory))) == sorted(keys, key=str.encode)


def test_shares_of_a_directory(tmp_path: Path) -> None:
    fill(tmp_path, KEYS)
    parts = [read(channel(tmp_path), Shard(index, 4)) for index in range(4)]
    assert sorted(item for part in parts for item in part if item[0]) == sorted(read(channel(tmp_path)))


def test_names_that_are_no_unicode(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.bin")).write_bytes(b"x")
    assert read(channel(tmp_path)) == [("\udcff.bin", b"x")]


def test_links_are_followed_where_they_lead_to_something_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
        found = read(channel(root))
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
    told = {
        Path(str(record.args[0])).name: str(record.args[1]).replace(str(tmp_path), "")
        for record in caplog.records
        if isinstance(record.args, tuple)
    }
    assert told == {
        "again": "a link to /data, which is read under its own name",
        "latest": "a link to /pool/2024, which is read under its own name",
        "loop": "a link to /data, which is read under its own name",
        "up": "a link to , in which it lies itself",
        "v": "a link to /data/d, which is read under its own name",
        "dangling": "a link to what is not here, ../nothing",
        "itself": "a link to what is not here, itself",
        "below_a_file": "a link to what is not here, a/b",
        "pipe": "neither a file nor a directory",
        "socket": "neither a file nor a directory",
        "to_pipe": "neither a file nor a directory",
    }


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
@pytest.mark.parametrize("folders", [[], ["deep/er", ".hidden"]])
def test_a_folder_without_files_is_an_error_where_there_must_be_some(
    tmp_path: Path, folders: list[str], distribution: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    of_one = replace(channel(tmp_path, "FastFile", distribution), hosts=1)
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
def test_what_is_no_file_any_more_when_it_is_opened(tmp_path: Path, instead: str) -> None:
    fill(tmp_path, ["a", "b"])
    names = list(mounted.objects(channel(tmp_path)))
    (tmp_path / "b").unlink()
    if instead == "fifo":
        os.mkfifo(tmp_path / "b")
    elif instead == "directory":
        (tmp_path / "b").mkdir()
    streams = mounted.open_objects(channel(tmp_path), names)
    key, stream = next(streams)
    stream.close()
    assert key == "a"
    with pytest.raises(ChannelError, match=f"channel 'train' cannot be read at 'b': .*{tmp_path}/b"):
        next(streams)
    with pytest.raises(OSError, match=r"No such file|Is a directory|Illegal seek"):
        RemoteFile(str(tmp_path / "b"), "b").fetch(0, 10)


def test_a_channel_that_is_itself_a_link(tmp_path: Path) -> None:
    fill(tmp_path / "real", ["a"])
    (tmp_path / "link").symlink_to("real")
    assert read(channel(tmp_path / "link")) == [("a", b"a")]


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"channel 'train': .*/none is not a directory; its input mode is FastFile"):
        read(channel(tmp_path / "none", "FastFile"))
    # A host can be left without any object.
    sharded = channel(tmp_path / "none", distribution="ShardedByS3Key")
    assert read(sharded) == read(replace(sharded, hosts=2)) == []
    with pytest.raises(ChannelError, match=r"/none is not a directory; its input mode is File"):
        read(replace(sharded, hosts=1))


# A FIFO


def feed(path: Path, data: bytes) -> threading.Thread:
    """Writes into a FIFO as SageMaker does: made, filled, and gone when it has been read or closed."""

    def run() -> None:
        if not path.exists():
            os.mkfifo(path)
        try:
            with path.open("wb", buffering=0) as stream:
                view = memoryview(data)
                while view:
                    view = view[stream.write(view) :]
        except BrokenPipeError:
            pass
        path.unlink()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_fifo_per_epoch(tmp_path: Path) -> None:
    pipe = channel(tmp_path / "train", "Pipe")
    data = os.urandom(3_000_000)
    for epoch in (0, 1):
        feeder = feed(tmp_path / f"train_{epoch}", data[epoch:])
        assert read(pipe, epoch=epoch) == [(None, data[epoch:])]
        feeder.join()


def test_a_fifo_is_waited_for(tmp_path: Path) -> None:
    timer = threading.Timer(0.1, lambda: feed(tmp_path / "train_0", b"late").join())
    timer.start()
    assert read(channel(tmp_path / "train", "Pipe")) == [(None, b"late")]
    timer.join()


def test_a_slow_writer_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train_0")
    timer = threading.Timer(0.1, lambda: feed(tmp_path / "train_0", b"late").join())
    timer.start()
    assert read(channel(tmp_path / "train", "Pipe")) == [(None, b"late")]
    timer.join()


def test_an_empty_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train_0")
    feeder = feed(tmp_path / "train_0", b"")
    assert read(channel(tmp_path / "train", "Pipe")) == [(None, b"")]
    feeder.join()


def test_closing_early_ends_the_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train_0")
    feeder = feed(tmp_path / "train_0", bytes(50_000_000))
    [(_, stream)] = fifo.open_streams(channel(tmp_path / "train", "Pipe"), 0, EVERYTHING)
    assert stream.read(10)
    stream.close()
    feeder.join(timeout=10)
    assert not feeder.is_alive()


def test_a_fifo_that_never_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHER_FIFO_WAIT_SECONDS", "0.05")
    pipe = channel(tmp_path / "train", "Pipe")
    with pytest.raises(ChannelError, match=r"channel 'train': the FIFO .*/train_0 did not appear within 0.05 s"):
        read(pipe, epoch=3)
    os.mkfifo(tmp_path / "train_0")
    with pytest.raises(
        ChannelError, match=r"channel 'train': nothing was written to the FIFO .*/train_0 within 0.05 s"
    ):
        read(pipe)
    (tmp_path / "train_1").write_bytes(b"")
    with pytest.raises(ChannelError, match=r"train_1 is not a FIFO"):
        read(pipe, epoch=1)


# S3


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served as s3://bucket."""
    folder = tmp_path / "s3" / "bucket"
    folder.mkdir(parents=True)
    with serve(tmp_path / "s3", tmp_path / "overlay") as endpoint:
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }.items():
            monkeypatch.setenv(name, value)
        yield folder


@pytest.mark.parametrize("style", ["iterable", "map"])
def test_objects_under_a_prefix(bucket: Path, style: str) -> None:
    fill(bucket / "data", KEYS)
    (bucket / "data" / "folder").mkdir()
    wanted = [(key, key.encode()) for key in sorted(KEYS, key=str.encode)]
    assert read(connector("s3://bucket/data/", style)) == wanted
    assert read(connector("s3://bucket/data/", style, max_objects=4)) == wanted[:4]
    assert read(connector("s3://bucket/data/", style, max_objects=5), Shard(1, 2)) == wanted[1:5:2]


@pytest.mark.parametrize(
    ("uri", "keys"),
    [
        ("s3://bucket/t/train/", ["a", "b/c"]),
        ("s3://bucket/t/train", ["a", "b/c", "train_old/a"]),
        ("s3://bucket/t/tr", ["train/a", "train/b/c", "train_old/a"]),
        ("s3://bucket/t/train/a", ["a"]),
        ("s3://bucket/t", ["train/a", "train/b/c", "train_old/a"]),
        ("s3://bucket/", ["t/train/a", "t/train/b/c", "t/train_old/a"]),
        ("s3://bucket", ["t/train/a", "t/train/b/c", "t/train_old/a"]),
    ],
)
def test_keys_are_relative_as_in_file_mode(bucket: Path, uri: str, keys: list[str]) -> None:
    fill(bucket / "t", ["train/a", "train/b/c", "train_old/a"])
    assert [key for key, _ in read(connector(uri))] == keys


def test_folder_markers_are_no_objects(bucket: Path) -> None:
    fill(bucket, ["p/a"])
    client = boto3.client("s3")
    for key in ("p/", "p/b/"):
        client.put_object(Bucket="bucket", Key=key, Body=b"")
    assert [item["Key"] for item in client.list_objects_v2(Bucket="bucket")["Contents"]] == ["p/", "p/a", "p/b/"]
    assert read(connector("s3://bucket/p/", max_objects=1)) == [("a", b"p/a")]


@pytest.mark.parametrize("size", [0, 10_000_001, 4 << 20, 1 << 20])
def test_a_big_object_in_pieces(bucket: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(s3, "RANGE_BYTES", 1 << 20)
    data = os.urandom(size)
    (bucket / "big").write_bytes(data)
    [(key, stream)] = s3.open_streams(connector("s3://bucket/big"), 0, EVERYTHING)
    buffer = bytearray(1 << 20)
    found = stream.read(10)
    while count := stream.readinto(memoryview(buffer)):
        found += buffer[:count]
    assert (key, found) == ("big", data)
    stream.close()
    assert stream.read() == b""


def test_an_object_that_shrinks_while_it_is_read(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "RANGE_BYTES", 1 << 20)
    monkeypatch.setattr(s3, "HELD_BYTES", 1 << 20)  # so that the last range is not fetched before it is gone
    (bucket / "big").write_bytes(bytes(40 << 20))  # so many ranges that a slow start fetches only some of them
    [(_, stream)] = s3.open_streams(connector("s3://bucket/big"), 0, EVERYTHING)
    stream.read(1)
    (bucket / "big").write_bytes(bytes(4_500_000))
    with pytest.raises(ChannelError, match=r"s3://bucket/big "):
        stream.read()


def test_closing_an_object_early(bucket: Path) -> None:
    (bucket / "big").write_bytes(bytes(30_000_000))
    [(_, stream)] = s3.open_streams(connector("s3://bucket/big"), 0, EVERYTHING)
    assert stream.read(5) == bytes(5)
    stream.close()
    assert stream.read(5) == b""


def test_what_cannot_be_listed(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ChannelError, match=r"channel 'train': no object under s3://bucket/none; correct s3_uri"):
        read(connector("s3://bucket/none"))
    with pytest.raises(
        ChannelError, match=r"channel 'train': s3://no-bucket/x cannot be listed: there is no such bucket"
    ):
        read(connector("s3://no-bucket/x"))
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ChannelError, match=r"set AWS_REGION"):
        read(connector("s3://bucket/x"))


def test_an_object_that_went_away(bucket: Path) -> None:
    fill(bucket, ["a"])
    [(_, stream)] = s3.open_streams(connector("s3://bucket/a"), 0, EVERYTHING)
    (bucket / "a").unlink()
    with pytest.raises(ChannelError, match=r"s3://bucket/a cannot be read: it is not there any more"):
        stream.read()


def test_the_endpoint_of_the_environment() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_DEFAULT_REGION": "eu-west-1"}
    found = s3.connection(environ)
    assert (found["endpoint"], found["region"]) == ("http://minio:9000", "eu-west-1")
    assert found["s3client_config"].force_path_style is True
    found = s3.connection({**environ, "AWS_ENDPOINT_URL_S3": "http://other", "AWS_REGION": "us-west-2"})
    assert (found["endpoint"], found["region"]) == ("http://other", "us-west-2")
    at_aws = s3.connection({"AWS_REGION": "us-west-2"})
    assert at_aws["endpoint"] is None
    assert at_aws["s3client_config"].force_path_style is False


def test_without_the_connector_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3torchconnector", None)
    with pytest.raises(ImportError, match=r"pip install 'sagemaker-launch\[s3\]'"):
        read(connector("s3://bucket/x"))


@pytest.mark.parametrize("form", ["tar", "zip", "parquet"])
def test_an_empty_marker_gives_no_sample_and_hidden_files_do(bucket: Path, form: str) -> None:
    data = io.BytesIO()
    if form == "parquet":
        parquet.write_table(pyarrow.table({"x": [1]}), data)
    else:
        (tar_write if form == "tar" else zip_write).write(data, [{"__key__": "x", "txt": b"1"}])
    for key, content in {"_SUCCESS": b"", ".hidden": data.getvalue(), "part-0": data.getvalue()}.items():
        (bucket / key).write_bytes(content)
    for source in (channel(bucket), connector("s3://bucket/")):
        found: list[str | None] = []
        for name, stream in reader_of(source).open_streams(source, 0, EVERYTHING):
            with closing(stream):
                found += [name] * len(list(format_of(form).split(stream, name)))
        assert found == [".hidden", "part-0"]


# The table


def test_an_unknown_mode(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"input mode 'FasFile' is none of .*; did you mean 'FastFile'"):
        reader_of(channel(tmp_path, "FasFile"))
    assert {"File", "FastFile", "Pipe"} <= set(READERS)


def test_importing_the_readers_needs_the_standard_library_only() -> None:
    code = (
        "import sys, entrypoints.samples.channel, entrypoints.checkpoint, entrypoints.read_channels, entrypoints.samples.lst\n"
        "third = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "assert third <= {'entrypoints', '__main__'}, third\n"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True, cwd=REPOSITORY)
