"""The objects that a channel selects, from a real endpoint (moto, which accepts any key) and from a folder."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from launcher.errors import RefusedError
from launcher.local.channels.objects import Objects
from launcher.local.channels.selection import (
    NoObjectsError,
    list_objects,
    relative_path,
)
from launcher.local.channels.stores import embedded_store
from launcher.s3.manifests import AugmentedManifest
from launcher.s3.uri import S3Location
from s3_objects import client_of_job, remote_objects

BUCKET = "bucket"


@pytest.fixture(scope="module")
def moto_client() -> Iterator[Any]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="s", region_name="us-east-1")
    yield session.client("s3", endpoint_url=f"http://{host}:{port}")
    server.stop()


class Source(NamedTuple):
    """What is asked, and a client that puts something there."""

    objects: Objects
    client: Any


@pytest.fixture(params=["remote", "folder"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    if request.param == "folder":
        with embedded_store(tmp_path / "data", tmp_path / "overlay") as store:
            client = client_of_job(store.environ)
            client.create_bucket(Bucket=BUCKET)
            yield Source(store.objects, client)
        return
    moto_client = request.getfixturevalue("moto_client")
    moto_client.create_bucket(Bucket=BUCKET)
    yield Source(remote_objects(moto_client), moto_client)
    urllib.request.urlopen(f"{moto_client.meta.endpoint_url}/moto-api/reset", data=b"").close()


def put(client: Any, *keys: str, body: bytes = b"12345") -> None:
    for key in keys:
        client.put_object(Bucket=BUCKET, Key=key, Body=body)


def s3_channel(uri: str, kind: str = "S3Prefix", **source: Any) -> dict[str, Any]:
    return {
        "ChannelName": "train",
        "InputMode": "Pipe",
        "DataSource": {"S3DataSource": {"S3DataType": kind, "S3Uri": uri, **source}},
    }


def listed(objects: Objects, uri: str, kind: str = "S3Prefix", sample: int | None = None) -> dict[str, str]:
    return {found.key: found.path for found in list_objects(s3_channel(uri, kind), objects, sample)}


@pytest.mark.parametrize(
    ("prefix", "key", "path"),
    [
        ("", "a/b", "a/b"),
        ("train/", "train/a/b", "a/b"),
        ("train", "train/a/b", "a/b"),
        ("train", "train_old/a", "train_old/a"),
        ("data/part-", "data/part-000", "part-000"),
        ("data/part-", "data/part-0/x", "part-0/x"),
        ("data/one.csv", "data/one.csv", "one.csv"),
        ("one.csv", "one.csv", "one.csv"),
        ("train", "train//a", "/a"),
    ],
)
def test_relative_path_depends_on_the_end_of_the_prefix(prefix: str, key: str, path: str) -> None:
    assert relative_path(prefix, key) == path


def test_prefix_selects_keys_that_begin_with_it_except_folder_markers(source: Source) -> None:
    put(source.client, "train/", "train/a", "train/sub/", "train/sub/b", "train_old/c", "other")
    assert listed(source.objects, "s3://bucket/train") == {
        "train/a": "a",
        "train/sub/b": "sub/b",
        "train_old/c": "train_old/c",
    }
    assert listed(source.objects, "s3://bucket/train/") == {"train/a": "a", "train/sub/b": "sub/b"}
    assert listed(source.objects, "s3://bucket/train/a") == {"train/a": "a"}
    assert len(listed(source.objects, "s3://bucket")) == 4


def test_all_pages_are_read_and_a_sample_is_spread_over_them(tmp_path: Path) -> None:
    keys = [f"many/{number:04}" for number in range(1003)]
    (tmp_path / "data/s3/bucket/many").mkdir(parents=True)
    for key in keys:
        (tmp_path / "data/s3/bucket" / key).touch()
    with embedded_store(tmp_path / "data", tmp_path / "overlay") as store:
        assert list(listed(store.objects, "s3://bucket/many/")) == keys
        assert list(listed(store.objects, "s3://bucket/many/", sample=3)) == [keys[0], keys[334], keys[668]]
        assert list(listed(store.objects, "s3://bucket/many/", sample=1003)) == keys


def test_prefix_without_objects_names_the_nearest(moto_client: Any) -> None:
    moto_client.create_bucket(Bucket=BUCKET)
    put(moto_client, "data/train/a", "data/test/b")
    with pytest.raises(
        NoObjectsError,
        match=r"s3://bucket/data/trian/: no object .*did you mean data/train/\?; or read files of your own: --channel",
    ):
        listed(remote_objects(moto_client), "s3://bucket/data/trian/")
    with pytest.raises(NoObjectsError, match=r"beside it there are data/"):
        listed(remote_objects(moto_client), "s3://bucket/zzzzzzzz/")
    with pytest.raises(RefusedError, match=r"s3://nowhere/a at http://127.*: there is no such bucket"):
        listed(remote_objects(moto_client), "s3://nowhere/a")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket/trian/", r"there is no s3/bucket/trian/ \(s3/bucket holds train/\); did you mean train\?"),
        (
            "s3://bucket/train/x/",
            r"there is no s3/bucket/train/x/ \(s3/bucket/train holds 0, 1, 2, 3, 4 and 2 more\); ",
        ),
        ("s3://bukcet/train", r"there is no s3/bukcet/train \(s3 holds bucket/\); did you mean bucket\?; put"),
        ("s3://bucket/train/empty/", r"s3/bucket/train/empty/ holds no files; put the channel's files there"),
    ],
)
def test_folder_without_objects_names_its_path_and_neighbours(
    tmp_path: Path, uri: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # paths are shown from here
    (tmp_path / "s3/bucket/train/empty").mkdir(parents=True)
    for number in range(6):
        (tmp_path / f"s3/bucket/train/{number}").touch()
    with embedded_store(tmp_path, tmp_path / "overlay") as store, pytest.raises(NoObjectsError) as caught:
        listed(store.objects, uri)
    assert re.match(f"{uri}: {message}", str(caught.value))


def test_manifest_keys_continue_its_prefix(source: Source) -> None:
    put(source.client, "p/x/1", "p/2", "p/not-in-it")
    put(source.client, "m.json", body=json.dumps([{"prefix": "s3://bucket/p/"}, "x/1", "2"]).encode("utf-8-sig"))
    assert listed(source.objects, "s3://bucket/m.json", "ManifestFile") == {"p/x/1": "x/1", "p/2": "2"}
    assert listed(source.objects, "s3://bucket/m.json", "ManifestFile", sample=1) == {"p/x/1": "x/1"}


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"{nonsense", "begins with"),
        (b"\xff\xfe", "is not JSON"),
        (b'[{"prefix": "s3://bucket/p/"}, nonsense]', r"is not JSON \(Expecting value, at character 31\)"),
        (b'[{"prefix": "s3://bucket/p/"} "a"]', "is not JSON .Expecting ',' delimiter, at character 30"),
        (b'[{"prefix": "s3://bucket/p/"}] []', "is not JSON .Extra data, at character 31"),
        (b"{}", "begins with"),
        (b"[]", "begins with"),
        (b'["a"]', "begins with"),
        (b'[{"prefix": 3}, "a"]', "begins with"),
        (b'[{"prefix": "p/"}, "a"]', "m.json: prefix: 'p/' is not an S3 URI"),
        (b'[{"prefix": "s3://bucket/p/"}]', "names no objects"),
        (b'[{"prefix": "s3://bucket/p/"}, "a/", 7]', "entry 2: expected a non-empty text, .*, got 7; write"),
        (b'[{"prefix": "s3://bucket/p/"}, "s3://other/a"]', "entry 1, 's3://other/a', is a whole URI"),
        (b'[{"prefix": "s3://bucket/p/"}, "gone"]', "s3://bucket/p/gone( at .*)?: there is no "),
    ],
)
def test_malformed_manifest_is_refused(source: Source, manifest: bytes, message: str) -> None:
    put(source.client, "m.json", body=manifest)
    with pytest.raises(RefusedError, match=message):
        listed(source.objects, "s3://bucket/m.json", "ManifestFile")


def test_sizes_are_requested_while_they_are_taken(source: Source) -> None:
    put(source.client, "a")
    asked = 0

    def places() -> Iterator[S3Location]:
        nonlocal asked
        while True:
            asked += 1
            yield S3Location(BUCKET, "a")

    assert next(iter(source.objects.sizes(places()))) == 5
    assert asked <= 100


def test_augmented_manifest_selects_and_orders_attributes(source: Source) -> None:
    lines = [
        {"label": 3, "image-ref": "s3://other/a.png", "name": "é\u2028x", "unused": 1},
        {"label": {"a": [1.5, None]}, "image-ref": "s3://bucket/b.png", "name": ""},
    ]
    put(source.client, "m.jsonl", body="\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode())
    names = ["image-ref", "label", "name"]
    manifest = AugmentedManifest(source.objects.read, "s3://bucket/m.jsonl", names)
    assert [manifest.values(index) for index in (1, 0)] == [
        [S3Location("bucket", "b.png"), b'{"a": [1.5, null]}', b""],
        [S3Location("other", "a.png"), b"3", "é\u2028x".encode()],
    ]
    assert len(AugmentedManifest(source.objects.read, "s3://bucket/m.jsonl", ["label"], sample=1)) == 1


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        (b'{"a": 1}\n{"a"', ["a"], "line 2 is not JSON"),
        (b"[1]", ["a"], "line 1 is not a JSON object"),
        (b'{"a": 1}\n\n{"b": 1}', ["a"], r"line 3 has no attribute 'a' \(it has b\)"),
        (b'{"a-ref": 1}', ["a-ref"], "line 1: 'a-ref': '1' is not an S3 URI"),
        (b'{"a-ref": "a.png"}', ["a-ref"], "line 1: 'a-ref': 'a.png' is not an S3 URI"),
        (b" \n", ["a"], "has no lines"),
        (b'{"a": 1}', [], "needs AttributeNames"),
    ],
)
def test_malformed_augmented_manifest_is_refused(source: Source, text: bytes, names: list[str], message: str) -> None:
    put(source.client, "m.jsonl", body=text)
    with pytest.raises(RefusedError, match=message):
        AugmentedManifest(source.objects.read, "s3://bucket/m.jsonl", names)
