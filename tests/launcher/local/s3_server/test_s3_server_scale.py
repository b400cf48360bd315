"""What the embedded S3 server must bear: large objects in flat memory, and listings right and cheap at any size."""

from __future__ import annotations

import http.client
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from launcher.local.s3_server.store import Store
from launcher.s3.walk import names_after
from patience import PATIENCE
from s3_objects import client_of, signed
from served_bucket import serve

MB = 1 << 20
SERVER = """
import resource, sys
from pathlib import Path
from launcher.local.s3_server import serve
from launcher.local.s3_server.store import Store
with serve(Store(Path(sys.argv[1]), Path(sys.argv[2])), {"test": "test"}) as url:
    print(url, flush=True)
    for line in sys.stdin:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024), flush=True)
"""


@contextmanager
def server_process(root: Path) -> Iterator[tuple[str, Any]]:
    """A server in its own process: its endpoint, and a function that returns its peak memory in bytes."""
    command = [sys.executable, "-c", SERVER, str(root / "s3"), str(root / "overlay")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def memory() -> int:
            stdin.write("\n")
            return int(stdout.readline())

        yield stdout.readline().strip(), memory
        stdin.close()
        assert process.wait(PATIENCE) == 0


def test_large_objects_need_constant_memory(tmp_path: Path) -> None:
    bucket = tmp_path / "s3/bucket"
    bucket.mkdir(parents=True)
    with (bucket / "big").open("wb") as file:
        file.truncate(96 * MB)
        file.seek(95 * MB)
        file.write(b"near the end")
    with server_process(tmp_path) as (url, memory):
        client = client_of(url)
        client.get_object(Bucket="bucket", Key="big", Range="bytes=0-0")["Body"].read()
        before = memory()
        body = client.get_object(Bucket="bucket", Key="big")["Body"]
        assert sum(len(block) for block in body.iter_chunks(MB)) == 96 * MB
        last = client.get_object(Bucket="bucket", Key="big", Range=f"bytes={95 * MB}-")["Body"].read()
        assert len(last) == MB and last.startswith(b"near the end")
        client.upload_file(str(bucket / "big"), "bucket", "parts")
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        with (bucket / "big").open("rb") as file:
            headers = signed("PUT", f"{url}/bucket/whole")
            connection.request("PUT", "/bucket/whole", file, {**headers, "Content-Length": str(96 * MB)})
        assert connection.getresponse().read() == b""
        connection.close()
        assert memory() - before < 32 * MB
    for name in ("parts", "whole"):
        with (tmp_path / "overlay/bucket" / name).open("rb") as file:
            assert file.seek(0, os.SEEK_END) == 96 * MB
            file.seek(95 * MB)
            assert file.read(12) == b"near the end"


def test_large_folder_is_read_once_for_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = tmp_path / "s3/bucket"
    for name in ("a", "b", "b/c", "d"):
        (bucket / name).mkdir(parents=True)
        for number in range(1200):
            (bucket / name / f"{number:04d}").touch()
    for folder in (bucket, *bucket.rglob("*/")):
        os.utime(folder, (0, 0))  # settled
    scanned = []
    scandir = os.scandir

    def counting(path: Any) -> Any:
        scanned.append(str(Path(path).relative_to(bucket)))
        return scandir(path)

    with serve(tmp_path / "s3", tmp_path / "overlay") as url:
        monkeypatch.setattr(os, "scandir", counting)
        pages = list(client_of(url).get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="b/"))
        assert [page["KeyCount"] for page in pages] == [1000, 1000, 400]
        assert scanned == ["b", "b/c"]


def test_listing_shows_changes_immediately(tmp_path: Path) -> None:
    folder = tmp_path / "s3/bucket"
    folder.mkdir(parents=True)
    store = Store(tmp_path / "s3", tmp_path / "overlay")
    now = time.time_ns()
    for number in range(10):
        (folder / f"{number:03d}").touch()
        os.utime(folder, ns=(now, now))  # as on a file system whose clock is coarse
        assert len(list(store.keys("bucket"))) == number + 1


@pytest.mark.linux
def test_names_that_cannot_be_keys_are_skipped_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "s3/bucket"
    folder.mkdir(parents=True)
    (folder / "a").touch()
    (folder / "itself").symlink_to("itself")
    (folder / "nowhere").symlink_to("gone")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).touch()
    warnings: list[str] = []
    store = Store(tmp_path / "s3", tmp_path / "overlay", warnings.append)
    assert [key for key, _ in store.keys("bucket")] == ["a"]
    links = "'itself' (a link that leads nowhere), 'nowhere' (a link that leads nowhere)"
    assert warnings == [f"{folder}/: left out what cannot be in S3: {links}, b'\\xff' (not UTF-8); rename or remove it"]


@pytest.mark.parametrize("seed", range(20))
def test_listing_equals_the_sorted_keys(tmp_path: Path, seed: int) -> None:
    """Random objects in data folder, overlay and beside it, some deleted; the listing worked out from the sorted keys."""
    choose = random.Random(seed)
    store = Store(tmp_path / "s3", tmp_path / "overlay")
    store.create_bucket("bucket")

    def text(longest: int) -> str:
        return "".join(choose.choices("ab/-é\U0010ffff", k=choose.randint(0, longest)))

    keys = set()
    for key in {text(6) for _ in range(60)} - {""}:
        path = tmp_path / "s3/bucket" / key
        plain = all(key.split("/")) and not path.exists() and not any(up.is_file() for up in path.parents)
        if plain and choose.random() < 0.5:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"data")
        if not (plain and path.exists()) or choose.random() < 0.3:
            put(store, key)
        keys.add(key)
    for key in choose.sample(sorted(keys), 15):
        store.delete("bucket", key)
        keys.discard(key)

    for _ in range(100):
        prefix, delimiter, marker = text(3), choose.choice(["", "/", "a", "b/"]), choose.choice([text(5), ""])
        names = set()
        for key in keys:
            head, ended, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if key.startswith(prefix):
                names.add(prefix + head + ended if ended else key)
        expected = sorted(name for name in names if name > marker)
        found = store.keys("bucket", prefix, marker, one_each=delimiter == "/")
        named = list(names_after(found, prefix, delimiter, marker))
        assert [name for name, _ in named] == expected
        assert all((path is None) == (delimiter != "" and delimiter in name[len(prefix) :]) for name, path in named)
        assert all(store.describe(path) for _, path in named if path is not None)


def put(store: Store, key: str) -> None:
    store.put(("bucket", key), store.receive(()), {})
