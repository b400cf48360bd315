"""What only the embedded S3 server has: its data folder and overlay, and how it starts, ends and fails."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from patience import PATIENCE
from s3_objects import client_of, signed
from served_bucket import serve

BUCKET = "bucket"


class Local:
    """A served folder, and a client of it."""

    def __init__(self, root: Path) -> None:
        self.data, self.overlay = root / "s3", root / "overlay"
        self.objects = self.data / BUCKET
        self.objects.mkdir(parents=True)
        self._stack = ExitStack()

    def start(self) -> None:
        self.url = self._stack.enter_context(serve(self.data, self.overlay))
        self.client = client_of(self.url, max_pool_connections=32)

    def stop(self) -> None:
        self._stack.close()

    def put(self, key: str, body: bytes, **more: Any) -> str:
        return str(self.client.put_object(Bucket=BUCKET, Key=key, Body=body, **more)["ETag"])

    def get(self, key: str) -> bytes | None:
        try:
            return bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey"
            return None

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=key)

    def keys(self, **asked: Any) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, **asked)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        connection.request(method, path, body, signed(method, self.url + path, **headers))
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer


def connected(local: Local) -> socket.socket:
    place = urlsplit(local.url)
    return socket.create_connection((place.hostname, place.port or 80))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    served = Local(tmp_path)
    served.start()
    yield served
    served.stop()


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_writes_go_to_the_overlay_and_never_change_the_data(local: Local) -> None:
    (local.objects / "train").mkdir()
    for name in ("1", "2", "3"):
        (local.objects / "train" / name).write_bytes(b"data")
    before = tree(local.data)
    assert not local.overlay.exists(), "nothing is made before the first write"
    local.put("train/1", b"new")
    local.put("out/job/model.tar.gz", b"model")
    local.delete("train/2")
    assert tree(local.data) == before
    assert (local.overlay / BUCKET / "out/job/model.tar.gz").read_bytes() == b"model"
    assert local.keys() == ["out/job/model.tar.gz", "train/1", "train/3"]
    assert [local.get(f"train/{name}") for name in ("1", "2", "3")] == [b"new", None, b"data"]
    local.delete("train/1")
    assert local.get("train/1") is None and local.keys(Prefix="train/") == ["train/3"]
    local.put("train/2", b"again")
    assert local.get("train/2") == b"again" and local.keys(Prefix="train/") == ["train/2", "train/3"]
    local.delete("out/job/model.tar.gz")
    assert not (local.overlay / BUCKET / "out").exists(), "empty folders go with their last object"


def test_file_changed_by_hand_has_neither_the_headers_nor_the_etag_of_the_put_object(local: Local) -> None:
    tag = local.put("a", b"1", Metadata={"k": "v"})
    (local.overlay / BUCKET / "a").write_bytes(b"changed by hand")
    head = local.client.head_object(Bucket=BUCKET, Key="a")
    assert head["ETag"] != tag and head["Metadata"] == {} and local.get("a") == b"changed by hand"


def test_bucket_of_one_letter_is_read(local: Local) -> None:
    """S3 has none, but boto3 and a spec name it."""
    (local.data / "b").mkdir()
    (local.data / "b/k").write_bytes(b"one")
    assert [entry["Key"] for entry in local.client.list_objects_v2(Bucket="b")["Contents"]] == ["k"]
    assert local.client.get_object(Bucket="b", Key="k")["Body"].read() == b"one"
    local.client.create_bucket(Bucket="b")  # as rclone does before it writes
    with pytest.raises(ClientError, match="InvalidBucketName"):
        local.client.create_bucket(Bucket="c")


def test_etag_of_a_data_file_changes_with_it_and_is_not_an_md5(local: Local) -> None:
    path = local.objects / "k"
    path.write_bytes(b"one")
    tags = [local.client.head_object(Bucket=BUCKET, Key="k")["ETag"] for _ in range(2)]
    assert tags[0] == tags[1] and "-" in tags[0]
    os.utime(path, ns=(1, 1))
    assert local.client.head_object(Bucket=BUCKET, Key="k")["ETag"] != tags[0]


@pytest.mark.parametrize(
    "path", ["/bucket/../secret", "/bucket/%2e%2e/secret", "/bucket/a/..%2f..%2fsecret", "/../secret"]
)
def test_no_request_reads_outside_its_bucket(local: Local, path: str) -> None:
    for folder in (local.data, local.data.parent, local.overlay):
        folder.mkdir(exist_ok=True)
        (folder / "secret").write_bytes(b"secret")
    (local.objects / "a").mkdir()
    before = tree(local.data.parent)
    assert local.send("GET", path)[0] == 404
    assert local.send("PUT", path, b"overwritten")[0] in (200, 404)
    local.send("DELETE", path)
    after = {name: body for name, body in tree(local.data.parent).items() if not name.startswith("overlay/.s3/")}
    assert after == before
    assert local.send("GET", "/.s3/odd")[0] == 404


def test_links_in_the_data_are_followed_for_reading_only(local: Local, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").write_bytes(b"linked")
    (local.objects / "link").symlink_to(elsewhere)
    (local.objects / "loop").symlink_to(local.objects)
    (local.objects / "nowhere").symlink_to(tmp_path / "missing")
    assert local.keys() == ["link/x"] and local.get("link/x") == b"linked" and local.get("nowhere") is None
    local.put("link/x", b"new")
    local.delete("link/x")
    assert tree(elsewhere) == {"x": b"linked"}


@pytest.mark.linux
def test_fifos_folders_and_undecodable_names_are_not_objects(local: Local) -> None:
    os.mkfifo(local.objects / "fifo")
    (local.objects / "empty-folder").mkdir()
    (local.objects / "a").write_bytes(b"a")
    os.close(os.open(os.fsencode(local.objects) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    assert local.keys() == ["a"] and local.get("fifo") is None and local.get("empty-folder") is None
    assert "CommonPrefixes" not in local.client.list_objects_v2(Bucket=BUCKET, Delimiter="/")


def test_truncated_upload_leaves_nothing(local: Local) -> None:
    for start in (b"Content-Length: 100000\r\n\r\nxyz", b"Transfer-Encoding: chunked\r\n\r\n400\r\nxyz"):
        with connected(local) as connection:
            headers = "".join(f"{name}: {value}\r\n" for name, value in signed("PUT", f"{local.url}/bucket/k").items())
            connection.sendall(b"PUT /bucket/k HTTP/1.1\r\n" + headers.encode() + start)
    wrong = {"x-amz-decoded-content-length": "11", "Content-Encoding": "aws-chunked"}
    status, answer = local.send("PUT", "/bucket/k", b"a\r\n0123456789\r\n0\r\n\r\n", **wrong)
    assert status == 400 and b"IncompleteBody" in answer
    assert local.get("k") is None
    local.stop()  # waits for the threads of the cut connections
    assert tree(local.overlay) == {}


def test_unsupported_requests_are_refused(local: Local) -> None:
    (local.objects / "k").write_bytes(b"k")
    connection = http.client.HTTPConnection(urlsplit(local.url).netloc, timeout=PATIENCE)
    for method, path, body, expected in (
        ("GET", "/bucket/k?acl", b"", (501, b"NotImplemented")),
        ("PUT", "/bucket/k?tagging", b"<Tagging/>", (501, b"NotImplemented")),
        ("POST", "/bucket/k", b"x" * 100_000, (405, b"MethodNotAllowed")),
        ("POST", "/bucket?delete", b"<not xml", (400, b"MalformedXML")),
        ("GET", "/bucket/%ff", b"", (400, b"InvalidURI")),
        ("GET", "/bucket?max-keys=many", b"", (400, b"InvalidArgument")),
        ("GET", "/bucket?list-type=2&continuation-token=%25", b"", (400, b"InvalidArgument")),
        ("GET", "/bucket?encoding-type=base85", b"", (400, b"InvalidArgument")),
        ("PUT", "/Not_A-Name", b"", (400, b"InvalidBucketName")),
        ("PUT", "/bucket/" + "x" * 1025, b"", (400, b"KeyTooLongError")),
        ("GET", "/bucket/k", b"", (200, b"k")),
    ):
        # All on one connection, which an error must not break.
        connection.request(method, path, body, signed(method, local.url + path))
        response = connection.getresponse()
        answer = response.read()
        assert response.status == expected[0] and expected[1] in answer, (method, path, answer)
    connection.close()


def test_concurrent_clients_get_their_own_objects(local: Local) -> None:
    def work(number: int) -> bool:
        body = str(number).encode() * 5000
        local.put(f"{number % 7}/{number:03d}", body)
        local.put("shared", body)
        whole = local.get("shared")
        assert whole is not None and whole == whole[: len(whole) // 5000] * 5000, "two writers in one object"
        return local.get(f"{number % 7}/{number:03d}") == body

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(200)))
    assert local.keys() == sorted([*(f"{number % 7}/{number:03d}" for number in range(200)), "shared"])


def test_server_ends_without_threads_or_files(local: Local) -> None:
    others = [thread for thread in threading.enumerate() if thread.daemon and "request" in thread.name]  # other tests'
    with connected(local) as idle:
        local.get("k")
        local.stop()
        left = [thread for thread in threading.enumerate() if thread not in others]
        assert not [thread for thread in left if "s3-" in thread.name or "request" in thread.name]
        assert idle.recv(1) == b"", "the server hangs up"
    assert not local.overlay.exists()


def test_file_that_shrinks_while_it_is_sent_is_an_error(local: Local) -> None:
    path = local.objects / "k"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    body = local.client.get_object(Bucket=BUCKET, Key="k")["Body"]
    body.read(1)
    os.truncate(path, 1)
    with pytest.raises(Exception, match=r"(?i)incomplete|broken|reset"):
        body.read()
