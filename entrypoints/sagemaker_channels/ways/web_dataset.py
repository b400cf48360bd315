"""WebDataset over the AWS CLI, a folder, boto3's downloads into memory, and s3fs's file objects."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from sagemaker_channels.ways.card import Need, Way, paths, urls
from sagemaker_channels.ways.ours import CONNECTOR, FOLDERS

WEBDATASET = Need("webdataset", "pip install webdataset")
AWS = Need("aws", "pip install awscli", is_program=True)
BOTO3 = Need("boto3", "pip install boto3")
S3FS = Need("s3fs", "pip install s3fs")


Opener = Callable[[str], Any]  # from a URL to a file object


def _dataset(names: Iterable[str], opener: Callable[[], Opener] | None = None) -> Any:
    """Return WebDataset's pipeline; `opener` returns, in each worker, what replaces WebDataset's own opener."""
    import webdataset
    from webdataset.tariterators import group_by_keys, tar_file_expander

    return webdataset.DataPipeline(
        webdataset.SimpleShardList(list(names)),
        webdataset.split_by_worker,
        partial(_url_opener, opener=opener or _gopen),
        tar_file_expander,
        group_by_keys,
    )


def _url_opener(shards: Iterable[Mapping[str, Any]], opener: Callable[[], Opener]) -> Iterator[dict[str, Any]]:
    opened = opener()
    for shard in shards:
        yield {**shard, "stream": opened(shard["url"])}


def _gopen() -> Opener:
    import webdataset

    return webdataset.gopen  # type: ignore[no-any-return]


def _boto3() -> Opener:
    import boto3

    client = boto3.client("s3")

    def opened(url: str) -> io.BytesIO:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        stream = io.BytesIO()
        client.download_fileobj(bucket, key, stream)
        stream.seek(0)
        return stream

    return opened


def _s3fs() -> Opener:
    import s3fs

    return s3fs.S3FileSystem().open  # type: ignore[no-any-return]


AWS_CLI = Way(
    name="webdataset-aws-cli",
    title="WebDataset over pipe:aws s3 cp",
    row=12,
    arrivals=("s3",),
    needs=(CONNECTOR, WEBDATASET, AWS),
    formats=("tar",),
    open=lambda source: _dataset(f"pipe:aws s3 cp {shlex.quote(url)} -" for url in urls(source)),
)
FOLDER = Way(
    name="webdataset-folder",
    title="WebDataset over a folder",
    row=12,
    arrivals=FOLDERS,
    needs=(WEBDATASET,),
    formats=("tar",),
    open=lambda source: _dataset(paths(source)),
)
IN_MEMORY = Way(
    name="webdataset-boto3",
    title="WebDataset, boto3 download_fileobj",
    row=13,
    arrivals=("s3",),
    needs=(CONNECTOR, WEBDATASET, BOTO3),
    formats=("tar",),
    open=lambda source: _dataset(urls(source), _boto3),
)
BY_S3FS = Way(
    name="webdataset-s3fs",
    title="WebDataset over s3fs",
    row=14,
    arrivals=("s3",),
    needs=(CONNECTOR, WEBDATASET, S3FS),
    formats=("tar",),
    start_method="spawn",  # s3fs's event loop does not survive a fork
    open=lambda source: _dataset(urls(source), _s3fs),
)
