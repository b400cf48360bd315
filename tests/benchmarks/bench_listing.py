"""The first shuffled batch of a million objects 20 ms away, and resuming there at 99 %.

Their pages are slices of one block of memory, and all objects have the same content, so that the store is faster than its readers.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from far_store import connector_channel, running
from rounds import Row, interleaved, row

from sagemaker_channels import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.job.environment import Environment

COUNT, BATCH, LATENCY = 1_000_000, 64, 0.02
_THREADS = 32
_SHARD = Shard(1, 100)
_READING: dict[str, Any] = {"seed": 7, "block": BATCH}
_SERVER = """
import hashlib, sys, time
from bisect import bisect_right
from pathlib import Path
from urllib.parse import parse_qs
from launcher.local.s3_server import serve
from launcher.local.s3_server.http_server import Response
from launcher.local.s3_server.store import Store
count, latency = int(sys.argv[2]), float(sys.argv[3])
body = bytes(1000)
etag = hashlib.md5(body).hexdigest()
entry = (
    "<Contents><Key>data/%07d.bin</Key><LastModified>2026-11-22T10:11:12.000Z</LastModified><ETag>&quot;" + etag
    + "&quot;</ETag><Size>1000</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
entries = "".join([entry % number for number in range(count)]).encode()
width = len(entries) // count
keys = range(count)
def page(query):
    query = {name: values[0] for name, values in parse_qs(query).items()}
    after = query.get("continuation-token", query.get("start-after", ""))
    start = bisect_right(keys, after, key=lambda number: "data/%07d.bin" % number)
    end = min(count, start + 1000)
    more = "<IsTruncated>%s</IsTruncated>" % ("true" if end < count else "false")
    if end < count:
        more += "<NextContinuationToken>data/%07d.bin</NextContinuationToken>" % (end - 1)
    head = '<?xml version="1.0"?><ListBucketResult><Name>bucket</Name><Prefix>data/</Prefix><MaxKeys>1000</MaxKeys>' + more
    return b"".join([head.encode(), entries[start * width : end * width], b"</ListBucketResult>"])
def around(answer):
    def late(request):
        time.sleep(latency)
        if "list-type" in request.query:
            return Response(200, {"Content-Type": "application/xml"}, page(request.query))
        headers = {"ETag": '"%s"' % etag, "Last-Modified": "Sun, 22 Nov 2026 10:11:12 GMT"}
        if "range" not in request.headers:
            return Response(200, headers, body)
        start, _, end = request.headers["range"].removeprefix("bytes=").partition("-")
        part = body[int(start) : int(end) + 1]
        headers["Content-Range"] = "bytes %s-%d/%d" % (start, int(start) + len(part) - 1, len(body))
        return Response(206, headers, part)
    return late
store = Store(Path(sys.argv[1]) / "s3", Path(sys.argv[1]) / "overlay")
with serve(store, {"any": "any"}, around) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


def measure(folder: Path) -> list[Row]:
    """Two rows; the store takes 250 MB of memory, and a listing 60 MB of disk."""
    (folder / "s3" / "bucket").mkdir(parents=True)
    with running(_SERVER, str(folder), str(COUNT), str(LATENCY)) as url:
        job = connector_channel(folder, "s3://bucket/data/")
        works = {"ours": lambda: _first_batch(folder, job), "S3IterableDataset": lambda: _seconds(_iterable)}
        limit = {"limit": lambda: _seconds(lambda: _plain_listing(url))}
        found = interleaved({**works, **limit}, 3)
        rows = [row("first shuffled batch of 1,000,000 objects, 20 ms latency", found, "S3IterableDataset", 0)]
        state = _state(folder, job)
        found = interleaved({"ours": lambda: _resume(folder, job, state), **limit}, 3)
        rows.append(row("resume there at 99 %, on another machine", found, "limit", 0))
        kept = replace(job, job_name="a-job", root=folder)
        (folder / "checkpoints").mkdir()
        found = interleaved({"ours": lambda: _resume(folder, kept, state), **limit}, 3)
        rows.append(row("resume there at 99 %, from the kept listing", found, "limit", 0))
    return rows


@contextmanager
def _another_machine(folder: Path) -> Iterator[None]:
    """A temporary folder without a listing."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        before, tempfile.tempdir = tempfile.tempdir, temporary
        try:
            yield
        finally:
            tempfile.tempdir = before


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _first_batch(folder: Path, job: Environment) -> float:
    with _another_machine(folder):
        start = time.perf_counter()
        with open_channel("train", environment=job, **_READING) as samples:
            assert len(list(islice(samples, BATCH))) == BATCH
            return time.perf_counter() - start


def _state(folder: Path, job: Environment) -> Any:
    """The state after 99 % of a shard's objects."""
    with _another_machine(folder), open_channel("train", environment=job, shard=_SHARD, **_READING) as samples:
        assert len(list(islice(samples, COUNT // _SHARD.count * 99 // 100))) > 0
        return samples.state_dict()


def _resume(folder: Path, job: Environment, state: Any) -> float:
    with _another_machine(folder):
        start = time.perf_counter()
        with open_channel("train", environment=job, shard=_SHARD, **_READING) as samples:
            samples.load_state_dict(state)
            next(samples)
            return time.perf_counter() - start


def _iterable() -> None:
    from connector import _iterable as first

    first("data", BATCH)


def _plain_listing(url: str) -> None:
    """Threads that know where to split and only receive the pages."""
    starts = iter(range(0, COUNT, 1000))
    lock = threading.Lock()

    def run() -> None:
        connection = HTTPConnection(urlsplit(url).netloc)
        while True:
            with lock:
                start = next(starts, None)
            if start is None:
                return
            after = f"data%2F{start - 1:07d}.bin" if start else ""
            connection.request("GET", f"/bucket?list-type=2&prefix=data%2F&start-after={after}")
            if len(connection.getresponse().read()) < 100_000:
                raise RuntimeError("the store sent another page")

    threads = [threading.Thread(target=run) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
