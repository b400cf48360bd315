"""Channels read through the connector: keys, pieces of big objects, and objects that change or are missing."""

from __future__ import annotations

import io
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pyarrow
import pytest
from pyarrow import parquet
from torch.utils.data import DataLoader

from object_channels import connector, fill, on_disk, read, streams_of
from sagemaker_channels import ChannelDataset, ChannelMapDataset, open_channel
from sagemaker_channels.epoch.channel import find_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import format_of, tar, zip_archive
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.sources import connector_client, s3, s3_client
from sagemaker_channels.sources.connector_client import place
from served_bucket import served_bucket

KEYS = ["a-b/1", "a.b", "a/1", "a/b/c", "a0", ".hidden", "Z", "ü/é", "sp ace#1"]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served as s3://bucket."""
    with served_bucket(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.mark.parametrize("style", ["iterable", "map"])
def test_objects_under_a_prefix_are_read_in_order(bucket: Path, style: str) -> None:
    fill(bucket / "data", KEYS)
    (bucket / "data" / "folder").mkdir()
    wanted = [(key, key.encode()) for key in sorted(KEYS, key=str.encode)]
    assert read(connector("s3://bucket/data/", style)) == wanted
    assert read(connector("s3://bucket/data/", style, max_objects=4)) == [wanted[number] for number in (0, 2, 4, 6)]
    assert read(connector("s3://bucket/data/", style, max_objects=5), Shard(1, 2)) == [wanted[1], wanted[5]]
    assert read(connector("s3://bucket/data/", style, max_objects=50)) == wanted


def test_connector_that_reads_no_ranges_is_refused(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(bucket / "data", KEYS)
    monkeypatch.setattr(connector_client, "OLDEST", [99, 0, 0])
    with pytest.raises(ImportError, match=r"s3torchconnector .* is too old: pip install 's3torchconnector>=99\.0\.0'"):
        read(connector("s3://bucket/data/", "iterable"))


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


def test_folder_markers_are_not_read(bucket: Path) -> None:
    fill(bucket, ["p/a"])
    client = boto3.client("s3")
    for key in ("p/", "p/b/"):
        client.put_object(Bucket="bucket", Key=key, Body=b"")
    assert [item["Key"] for item in client.list_objects_v2(Bucket="bucket")["Contents"]] == ["p/", "p/a", "p/b/"]
    assert read(connector("s3://bucket/p/", max_objects=1)) == [("a", b"p/a")]


@pytest.mark.parametrize("size", [0, 10_000_001, 4 << 20, 1 << 20])
def test_big_object_is_read_in_pieces(bucket: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(s3, "RANGE_BYTES", 1 << 20)
    data = os.urandom(size)
    (bucket / "big").write_bytes(data)
    [(key, stream)] = streams_of(connector("s3://bucket/big"))
    buffer = bytearray(1 << 20)
    found = stream.read(10)
    while count := stream.readinto(memoryview(buffer)):
        found += buffer[:count]
    assert (key, found) == ("big", data)
    stream.close()
    assert stream.read() == b""


def test_empty_object_needs_no_request(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client crashes if the second of the two requests that it makes for one finds no connection."""
    fill(bucket, ["p/a"])
    (bucket / "p/empty").touch()
    asked: list[str] = []
    fetch = s3_client.fetch

    def noting(*wanted: Any) -> Any:
        asked.append(wanted[1])
        return fetch(*wanted)

    monkeypatch.setattr(s3_client, "fetch", noting)
    assert read(connector("s3://bucket/p/")) == [("a", b"p/a"), ("empty", b"")]
    assert asked == ["p/a"]


def test_object_that_shrinks_while_it_is_read_raises(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "RANGE_BYTES", 1 << 20)
    monkeypatch.setattr(s3, "HELD_BYTES", 1 << 20)  # so that the last range is not fetched before it is gone
    (bucket / "big").write_bytes(bytes(40 << 20))  # so many ranges that a slow start fetches only some of them
    [(_, stream)] = streams_of(connector("s3://bucket/big"))
    stream.read(1)
    (bucket / "big").write_bytes(bytes(4_500_000))
    with pytest.raises(ChannelError, match=r"s3://bucket/big "):
        stream.read()


def test_object_closed_early_yields_no_more_bytes(bucket: Path) -> None:
    (bucket / "big").write_bytes(bytes(30_000_000))
    [(_, stream)] = streams_of(connector("s3://bucket/big"))
    assert stream.read(5) == bytes(5)
    stream.close()
    assert stream.read(5) == b""


def test_prefix_that_cannot_be_listed_raises(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ChannelError, match=r"channel 'train': no object under s3://bucket/none; correct the S3 URI"):
        read(connector("s3://bucket/none"))
    with pytest.raises(
        ChannelError, match=r"channel 'train': s3://no-bucket/x cannot be listed: there is no such bucket"
    ):
        read(connector("s3://no-bucket/x"))
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ChannelError, match=r"set AWS_REGION"):
        read(connector("s3://bucket/x"))


def test_endpoint_that_refuses_connections_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took up to 48 s, and the message was "no connection"."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    begun = time.monotonic()
    with pytest.raises(ChannelError, match=f"{endpoint} refuses connections, tried for .*; check that a store runs"):
        list(open_channel("s3://bucket/", endpoint=endpoint))
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("endpoint", ["localhost:9000", "s3://bucket", "https://"])
def test_endpoint_that_is_no_url_is_named_immediately(endpoint: str) -> None:
    """It was tried for 22 s."""
    with pytest.raises(
        ChannelError, match=f"the endpoint of S3 is {endpoint!r}; set AWS_ENDPOINT_URL .or endpoint=. to http"
    ):
        list(open_channel("s3://bucket/", endpoint=endpoint))


def test_object_deleted_before_its_request_raises(bucket: Path) -> None:
    fill(bucket, ["a"])
    [(_, stream)] = streams_of(connector("s3://bucket/a"))
    (bucket / "a").unlink()
    with pytest.raises(ChannelError, match=r"s3://bucket/a cannot be read: it no longer exists"):
        stream.read()


def test_endpoint_and_region_are_those_of_the_environment() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_DEFAULT_REGION": "eu-west-1"}
    assert place(environ) == ("http://minio:9000", "eu-west-1")
    environ |= {"AWS_ENDPOINT_URL_S3": "http://other", "AWS_REGION": "us-west-2"}
    assert place(environ) == ("http://other", "us-west-2")
    assert place({"AWS_REGION": "us-west-2"}) == (None, "us-west-2")


def test_prefix_is_read_of_the_endpoint_and_region_that_are_named(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bucket, KEYS)
    store: dict[str, Any] = {"endpoint": os.environ["AWS_ENDPOINT_URL"], "region": "eu-west-1"}
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    wanted = [key.encode() for key in sorted(KEYS, key=str.encode)]
    for seed in (None, 7):
        samples = open_channel("s3://bucket/", seed=seed, **store)
        assert sorted(sample["data"] for sample in samples) == sorted(wanted)
    loader: DataLoader[Any] = DataLoader(ChannelDataset("s3://bucket/", **store), None, num_workers=1)
    assert [sample["data"] for sample in loader] == wanted
    assert [sample["data"] for sample in ChannelMapDataset("s3://bucket/", **store)] == wanted
    assert s3.objects(find_channel(load_environment(bucket), "s3://bucket/", **store)).digest(3)


def test_endpoint_and_region_of_a_folder_raise(bucket: Path) -> None:
    with pytest.raises(TypeError, match=r"region is 'eu-west-1'; give it with an S3 URI only, and not with '/"):
        open_channel(str(bucket), region="eu-west-1")
    with pytest.raises(TypeError, match=r"endpoint is 5; give a string, for an S3 URI as the channel"):
        ChannelDataset("s3://bucket/", endpoint=5)  # type: ignore[arg-type]


def test_store_at_a_host_name_is_asked_for_paths(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bucket.localhost` resolves nowhere; at an address, such as the other tests have, the client always asks for paths."""
    fill(bucket, ["a"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["AWS_ENDPOINT_URL"].replace("127.0.0.1", "localhost"))
    monkeypatch.setattr(s3_client, "PATIENCE_SECONDS", 1)
    assert read(connector("s3://bucket/")) == [("a", b"a")]


def test_aws_is_asked_for_hosts_named_after_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS may answer paths in newer regions with a redirect, and directory buckets have no paths."""
    asked: list[dict[str, object]] = []

    def record(_: str, **settings: object) -> None:
        asked.append(settings)
        raise ChannelError("asked")

    monkeypatch.setattr("s3torchconnectorclient._mountpoint_s3_client.MountpointS3Client", record)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(ChannelError, match="asked"):
        read(connector("s3://bucket/"))
    assert [settings["force_path_style"] for settings in asked] == [False]


def test_missing_connector_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3torchconnectorclient", None)
    with pytest.raises(ImportError, match=r"pip install 'sagemaker-launch\[s3\]'"):
        read(connector("s3://bucket/x"))


@pytest.mark.parametrize("form", ["tar", "zip", "parquet"])
def test_empty_marker_yields_no_sample_and_hidden_files_do(bucket: Path, form: str) -> None:
    data = io.BytesIO()
    if form == "parquet":
        parquet.write_table(pyarrow.table({"x": [1]}), data)
    else:
        (tar if form == "tar" else zip_archive).write(data, [{"__key__": "x", "txt": b"1"}])
    for key, content in {"_SUCCESS": b"", ".hidden": data.getvalue(), "part-0": data.getvalue()}.items():
        (bucket / key).write_bytes(content)
    for source in (on_disk(bucket), connector("s3://bucket/")):
        found: list[str | None] = []
        for name, stream in streams_of(source):
            with closing(stream):
                found += [name] * len(list(format_of(form).split(stream, name)))
        assert found == [".hidden", "part-0"]
