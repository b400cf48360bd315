"""100 MB tar shards in S3, 20 ms away: ours against webdataset over `pipe:aws s3 cp`, as its documentation has it.

AWS_COMMAND names an `aws` that is not on the path.
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

from connector import client_alone
from far_store import connector_channel, far_store
from rounds import Row, interleaved, rate, row

SHARDS, MEMBERS, SIZE = 4, 1000, 100_000


def measure(folder: Path) -> list[Row]:
    """Return one row, or none without the command `aws`; `folder` needs 400 MB."""
    from sagemaker_channels.formats.tar import write

    aws = os.environ.get("AWS_COMMAND") or shutil.which("aws")
    if aws is None:
        return []
    shards = folder / "s3" / "bucket" / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    for number in range(SHARDS):
        with (shards / f"{number:06d}.tar").open("wb") as stream:
            data = os.urandom(SIZE)
            write(stream, ({"__key__": f"{number}-{member:06d}", "jpg": data} for member in range(MEMBERS)))
    size = (shards / "000000.tar").stat().st_size
    with far_store(folder, 0.02) as endpoint:
        found = interleaved(
            {
                "ours": lambda: rate(lambda: _ours(folder)),
                "webdataset": lambda: rate(lambda: _webdataset(f"pipe:{aws} s3 cp --endpoint-url {endpoint}")),
                "limit": lambda: rate(lambda: client_alone("shards", "tar", SHARDS, size)[1] / 1e6),
            }
        )
    return [row("100 MB tar shards in S3, 20 ms latency", found, "webdataset", 4, unit="MB/s")]


def _ours(folder: Path) -> float:
    from sagemaker_channels import open_channel

    job = connector_channel(folder, "s3://bucket/shards/", "application/x-tar")
    return sum(len(sample["jpg"]) for sample in open_channel("train", environment=job)) / 1e6


def _webdataset(command: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import webdataset

        urls = [f"{command} s3://bucket/shards/{number:06d}.tar -" for number in range(SHARDS)]
        return sum(len(sample["jpg"]) for sample in webdataset.WebDataset(urls, shardshuffle=False)) / 1e6
