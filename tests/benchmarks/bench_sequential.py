"""Formats in a FIFO: tar and RecordIO, against `cat` to a raw reader, webdataset and the SDK's reader loop."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rounds import Peer, Row, exhaust, interleaved, raw, row, through_fifo
from webdataset import WebDataset

from entrypoints.records import recordio, tar, tar_write

SDK_LOOP = """
import sys, time
from sagemaker.amazon.common import read_recordio
for _ in sys.stdin:
    with open(sys.argv[1], "rb") as stream:
        start = time.perf_counter()
        for _ in read_recordio(stream):
            pass
        print("seconds", time.perf_counter() - start, flush=True)
"""


def measure(megabytes: int = 256) -> list[Row]:
    """Rows of the table for tar of 100 KB members and RecordIO of 100 KB and 1 KB.

    The SDK's loop runs in the environment that LAUNCHER_SDK_V2_PYTHON names, and is left out where it is not set.
    """
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        payload = os.urandom(100_000)
        shard = folder / "shard.tar"
        with shard.open("wb") as stream:
            tar_write.write(stream, ({"__key__": f"{n:06d}", "bin": payload} for n in range(10 * megabytes)))
        seconds = interleaved(
            {
                "ours": lambda: through_fifo(shard, folder, lambda stream: exhaust(tar.split(stream))),
                "limit": lambda: through_fifo(shard, folder, raw),
                "webdataset": lambda: _webdataset(shard, folder / "fifo"),
            }
        )
        rows.append(row("tar of 100 KB members, FIFO", seconds, "limit", 0.85))
        rows.append(row("tar of 100 KB members, FIFO", seconds, "webdataset", 5))
        shard.unlink()
        rows += _recordio(folder, "RecordIO of 100 KB, FIFO", payload, 10 * megabytes)
        rows += _recordio(folder, "RecordIO of 1 KB, FIFO", payload[:1000], 1000 * megabytes // 4)
    return rows


def _recordio(folder: Path, work: str, payload: bytes, count: int) -> list[Row]:
    path = folder / "records.rec"
    with path.open("wb") as stream:
        recordio.write(stream, (payload for _ in range(count)))
    works: dict[str, Any] = {
        "ours": lambda: through_fifo(path, folder, lambda stream: exhaust(recordio.split(stream))),
        "limit": lambda: through_fifo(path, folder, raw),
    }
    small = len(payload) <= 1000  # where what is done for each record counts
    python = os.environ.get("LAUNCHER_SDK_V2_PYTHON") if small else None
    fifo = folder / "fifo"
    if python is not None:
        peer = Peer(python, SDK_LOOP, str(fifo))
        works["SDK"] = lambda: _peer_through_fifo(peer, path, fifo)
    seconds = interleaved(works)
    rows = [row(work, seconds, "limit", 0.9)] if not small else []
    if python is not None:
        peer.close()
        rows.append(row(work, seconds, "SDK", 2))
    return rows


def _peer_through_fifo(peer: Peer, path: Path, fifo: Path) -> float:
    with subprocess.Popen(["sh", "-c", f"exec cat '{path}' > '{fifo}'"]):
        return peer()


def _webdataset(path: Path, fifo: Path) -> None:
    """As its users have it: it opens the FIFO itself."""
    with subprocess.Popen(["sh", "-c", f"exec cat '{path}' > '{fifo}'"]):
        exhaust(WebDataset(str(fifo), shardshuffle=False, empty_check=False))


if __name__ == "__main__":
    for line in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 256):
        print(line)
