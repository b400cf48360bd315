"""Listings of S3: in ranges, of stores without an order, of hosts that differ, and of buckets whose requesters pay."""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faulty_s3 import channel_of, environment_of
from launcher.bundled import SCRIPTS
from launcher.local.s3_server.http_server import Answer, Request, Response
from object_listings import listing_of
from sagemaker_channels import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.sources import s3, s3_pages
from sagemaker_channels.sources.listing import version_of
from sagemaker_channels.sources.s3_pages import UnsuitableError
from served_bucket import serve, served_bucket
from torch_ranks import torch_processes

OnHost = Callable[[int], None]


class Bucket:
    """A bucket whose listing is that of `keys`, in their order, and the queries that came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: Sequence[str] = ()
        self.queries: list[str] = []
        self.on_start_after: Callable[[Request, Answer], Response] | None = None

    def around(self, answer: Answer) -> Answer:
        def listed(request: Request) -> Response:
            if "list-type" not in request.query:
                return answer(request)
            self.queries.append(request.query)
            answer_listing = listing_of(self.keys, self.folder)
            if self.on_start_after is not None and "start-after" in request.query:
                return self.on_start_after(request, answer_listing)
            return answer_listing(request)

        return listed


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    found = Bucket(tmp_path / "s3" / "bucket")
    with served_bucket(tmp_path, monkeypatch, found.around):
        yield found


@pytest.fixture
def on_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnHost:
    """Makes this process one of a host that has no listing yet."""

    def become(host: int) -> None:
        (tmp_path / f"host-{host}").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / f"host-{host}"))

    return become


@pytest.mark.parametrize("seed", [None, 7])
def test_each_object_of_a_store_without_order_is_read_once(
    tmp_path: Path, bucket: Bucket, on_host: OnHost, seed: int | None
) -> None:
    names = [f"{number:03d}" for number in range(100)]
    for name in names:
        (bucket.folder / name).write_text(name)
    found = []
    for host in range(2):
        on_host(host)
        bucket.keys = random.Random(host).sample(names, len(names))
        reading: dict[str, Any] = {} if seed is None else {"seed": seed}
        environment = environment_of(tmp_path, "s3://bucket/")
        found += [
            sample["__key__"]
            for sample in open_channel("train", environment=environment, shard=Shard(host, 2), **reading)
        ]
    assert sorted(found) == names


def test_directory_bucket_of_s3_express_is_read(tmp_path: Path, bucket: Bucket, on_host: OnHost) -> None:
    on_host(0)
    bucket.keys = [f"p/{name}" for name in "cab"]
    bucket.folder = bucket.folder.with_name("data--use1-az4--x-s3")
    (bucket.folder / "p").mkdir(parents=True)
    for key in bucket.keys:
        (bucket.folder / key).write_text(key)
    environment = environment_of(tmp_path, "s3://data--use1-az4--x-s3/p/")
    assert [sample["data"] for sample in open_channel("train", environment=environment)] == [b"p/a", b"p/b", b"p/c"]


def test_long_listing_is_requested_in_ranges(tmp_path: Path, bucket: Bucket, on_host: OnHost) -> None:
    on_host(0)
    bucket.keys = sorted(f"p/{number:05d} + é&%.bin" for number in range(12_000))
    channel = channel_of(tmp_path, "s3://bucket/p/")
    listing = s3.objects(channel)
    assert len(listing) == len(bucket.keys)
    assert [item.key for item in listing] == bucket.keys
    assert sum("start-after" in query for query in bucket.queries) > 0
    assert len(bucket.queries) < 2 * 12 + 8


def refused(request: Request, answer: Answer) -> Response:
    return Response(400, {}, b"")


def ignored(request: Request, answer: Answer) -> Response:
    return answer(replace(request, query=re.sub(r"start-after=[^&]*", "", request.query)))


@pytest.mark.parametrize("on_start_after", [refused, ignored])
def test_store_that_cannot_list_from_a_key_is_listed_page_by_page(
    tmp_path: Path, bucket: Bucket, on_host: OnHost, on_start_after: Callable[[Request, Answer], Response]
) -> None:
    on_host(0)
    bucket.keys = [f"p/{number:05d}" for number in range(9_000)]
    bucket.on_start_after = on_start_after
    assert [item.key for item in s3.objects(channel_of(tmp_path, "s3://bucket/p/"))] == bucket.keys
    assert any("start-after" in query for query in bucket.queries)


def test_short_listing_costs_no_more_requests(tmp_path: Path, bucket: Bucket, on_host: OnHost) -> None:
    on_host(0)
    bucket.keys = [f"p/{number:05d}" for number in range(5_000)]
    assert len(s3.objects(channel_of(tmp_path, "s3://bucket/p/"))) == 5_000
    assert len(bucket.queries) == 5


def test_pages_of_any_form_are_parsed_or_refused() -> None:
    entry = "<Contents><Key>{}</Key><LastModified>x</LastModified><ETag>{}</ETag><Size>5</Size><Owner><ID>a</ID></Owner></Contents>"
    md5 = "d41d8cd98f00b204e9800998ecf8427e"

    def page(*entries: str, before: str = "") -> str:
        return f"<ListBucketResult>{before}{''.join(entries)}</ListBucketResult>"

    found, token = s3_pages.parse(
        page(entry.format("a&amp;b+", f'"{md5}"'), entry.format("f/", ""), entry.format("g", "&quot;1&quot;"))
    )
    assert (list(found.keys), list(found.sizes), token) == ([b"a&b+", b"g"], [5, 5], None)
    assert list(found.versions) == [version_of(md5), version_of("1")]
    encoded = "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;</NextContinuationToken>"
    found, token = s3_pages.parse(page(entry.format("a+b%2B%0A", ""), before=encoded))
    assert (list(found.keys), token) == ([b"a b+\n"], "a&")
    for text in (
        page("<Contents><Key>a</Key></Contents>"),
        page(before="<IsTruncated>true</IsTruncated>"),
        page(entry.format("a", ""))[:-5],
    ):
        with pytest.raises(UnsuitableError):
            s3_pages.parse(text)


HOST = """
import os, sys
from pathlib import Path
import torch.distributed
from torch.utils.data import DataLoader
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.torch_data.dataset import ChannelDataset
from faulty_s3 import environment_of
rank, root, store, workers = int(os.environ["HOST"]), Path(os.environ["ROOT"]), sys.argv[1], int(sys.argv[2])
os.environ["SM_CURRENT_HOST"] = f"algo-{rank + 1}"
torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
dataset = ChannelDataset("train", environment=environment_of(root, "s3://bucket/"))
try:
    print(len(list(DataLoader(dataset, None, num_workers=workers, multiprocessing_context="fork" if workers else None))))
except ChannelError as error:
    print(error)
torch.distributed.barrier()
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_ranks_of_a_process_group_notice_that_their_hosts_list_others(tmp_path: Path, workers: int) -> None:
    with ExitStack() as stack:
        environs = []
        for rank in range(2):
            root = tmp_path / str(rank)
            (root / "s3" / "bucket").mkdir(parents=True)
            for number in range(5 + rank):
                (root / "s3" / "bucket" / f"{number}").write_text("any")
            (root / "tmp").mkdir()
            environs.append(
                {
                    "AWS_ENDPOINT_URL": stack.enter_context(serve(root / "s3", root / "overlay")),
                    "AWS_ACCESS_KEY_ID": "any",
                    "AWS_SECRET_ACCESS_KEY": "any",
                    "TMPDIR": str(root / "tmp"),
                    "PYTHONPATH": os.pathsep.join(map(str, (SCRIPTS, Path(__file__).parents[2]))),
                    "HOST": str(rank),
                    "ROOT": str(root),
                }
            )
        (tmp_path / "script.py").write_text(HOST)
        done = torch_processes("script.py", str(tmp_path / "store"), str(workers), cwd=tmp_path, environs=environs)
    [error] = [line for line in done.stdout.splitlines() if "the hosts do not list the same objects" in line]
    assert "channel 'train': s3://bucket/: " in error
    assert "5 on algo-1" in error and "6 on algo-2" in error
