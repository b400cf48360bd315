"""What the benchmarks of S3 and of mounts shard: our S3 server in a process of its own, with latency, and channels there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sagemaker_channels import contract
from sagemaker_channels.job.environment import Environment, load_environment

LATE_SECONDS = 0.5
_SERVER = """
import random, sys, time
from pathlib import Path
from launcher.local.s3_server import serve
from launcher.local.s3_server.store import Store
seconds, late_share, late_seconds = map(float, sys.argv[3:])
chance = random.Random(7)
def around(answer):
    def late(request):
        time.sleep(late_seconds if chance.random() < late_share else seconds)
        return answer(request)
    return late
with serve(Store(Path(sys.argv[1]), Path(sys.argv[2])), {"any": "any"}, around) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def far_store(folder: Path, seconds: float, late_share: float = 0.0) -> Iterator[str]:
    """Serve `<folder>/s3/<bucket>/<key>`, and point this process's clients there.

    Every answer takes `seconds`, but a share of them LATE_SECONDS.
    """
    times = map(str, (seconds, late_share, LATE_SECONDS))
    with running(_SERVER, str(folder / "s3"), str(folder / "overlay"), *times) as url:
        yield url


@contextmanager
def running(script: str, *arguments: str) -> Iterator[str]:
    """Run a server that prints its URL and ends with its input, and point this process's clients there."""
    command = [sys.executable, "-c", script, *arguments]
    before = dict(os.environ)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        url = server.stdout.readline().strip()
        os.environ.update(
            AWS_ENDPOINT_URL=url,
            AWS_REGION="us-east-1",
            AWS_DEFAULT_REGION="us-east-1",
            AWS_ACCESS_KEY_ID="any",
            AWS_SECRET_ACCESS_KEY="any",
            AWS_EC2_METADATA_DISABLED="true",
        )
        try:
            yield url
        finally:
            os.environ.clear()
            os.environ.update(before)
            server.stdin.close()


def fill(folder: Path, count: int, size: int) -> None:
    """Makes `count` objects of `size` random bytes, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        file = folder / f"{number:06d}.bin"
        if not file.exists() or file.stat().st_size != size:
            file.write_bytes(os.urandom(size))


def connector_channel(folder: Path, uri: str, content_type: str | None = None) -> Environment:
    """A job of one host whose channel `train` is the prefix, read through the connector."""
    entry = {"channel": "train", "s3_uri": uri, "style": "iterable"}
    if content_type:
        entry["content_type"] = content_type
    return load_environment(folder, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
