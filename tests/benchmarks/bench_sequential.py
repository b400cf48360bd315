"""Formats in a FIFO: tar and RecordIO, against `cat` to a raw reader, webdataset and the SDK's reader loop."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

from rounds import Peer, Row, exhaust, interleaved, raw, row, through_fifo
from webdataset import TarWriter, WebDataset

from sagemaker_channels.formats import recordio, tar

SDK_LOOP = """
import sys, time
from sagemaker.amazon.common import read_recordio
for _ in sys.stdin:
    with open(sys.argv[1], "rb") as stream:
        start = time.process_time()
        for _ in read_recordio(stream):
            pass
        print("seconds", time.process_time() - start, flush=True)
"""


def measure(megabytes: int = 256) -> list[Row]:
    """Rows of the table for tar of 100 KB members, ours and webdataset's own, and RecordIO of 100 KB, 1 KB and varied lengths.

    webdataset's writer puts a pax header before every member, for the fractions of its time.
    The SDK's loop runs in the environment that LAUNCHER_SDK_V2_PYTHON names, and is left out if it is not set.
    """
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        payload = os.urandom(100_000)
        shard = folder / "shard.tar"
        with shard.open("wb") as stream:
            tar.write(stream, ({"__key__": f"{n:06d}", "bin": payload} for n in range(10 * megabytes)))
        rows += _tar(folder, "tar of 100 KB members, FIFO", shard)
        for size, count in ((1000, 250 * megabytes // 4), (10_000, 100 * megabytes // 4), (100_000, 10 * megabytes)):
            with TarWriter(str(shard), encoder=False) as writer:
                for number in range(count // 2):
                    writer.write({"__key__": f"{number:06d}", "bin": payload[:size], "second.bin": payload[-size:]})
            work = f"webdataset's own shards, {size // 1000} KB members, FIFO"
            rows += _tar(folder, work, shard, 0.85 if size == len(payload) else 0)
        shard.unlink()
        count = 1000 * megabytes // 4
        rows += _recordio(folder, "RecordIO of 100 KB, FIFO", repeat(payload, 10 * megabytes), small=False)
        rows += _recordio(folder, "RecordIO of 1 KB, FIFO", repeat(payload[:1000], count))
        chance = random.Random(0)
        varied = (payload[: chance.randint(100, 4000)] for _ in range(count // 2))
        rows += _recordio(folder, "RecordIO of 100 B to 4 KB, FIFO", varied)
    return rows


def _tar(folder: Path, work: str, shard: Path, of_raw: float = 0.85) -> list[Row]:
    """Rows of an archive; of small members a raw reader gives thousands at once, so there is no aiming at its pace."""
    seconds = interleaved(
        {
            "ours": lambda: through_fifo(shard, folder, lambda stream: exhaust(tar.FORMAT.split(stream))),
            "limit": lambda: through_fifo(shard, folder, raw),
            "webdataset": lambda: _webdataset(shard, folder / "fifo"),
        }
    )
    return [row(work, seconds, "limit", of_raw), row(work, seconds, "webdataset", 5)]


def _recordio(folder: Path, work: str, payloads: Iterable[bytes], *, small: bool = True) -> list[Row]:
    """`small` where what is done for each record counts: then each reader's processor time, whatever `cat` and others take."""
    path = folder / "records.rec"
    with path.open("wb") as stream:
        recordio.write(stream, payloads)
    clock = time.process_time if small else time.perf_counter
    works: dict[str, Any] = {
        "ours": lambda: _once_open(path, folder, lambda stream: exhaust(recordio.FORMAT.split(stream)), clock),
        "limit": lambda: _once_open(path, folder, raw, clock),
    }
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


def _once_open(path: Path, folder: Path, read: Callable[[Any], object], clock: Callable[[], float]) -> float:
    """Return the clock's seconds from the opening of the FIFO, as the SDK's loop counts them, without the start of `cat`."""
    seconds = 0.0

    def timed(stream: Any) -> None:
        nonlocal seconds
        start = clock()
        read(stream)
        seconds = clock() - start

    through_fifo(path, folder, timed)
    return seconds


def _peer_through_fifo(peer: Peer, path: Path, fifo: Path) -> float:
    with subprocess.Popen(["sh", "-c", f"exec cat '{path}' > '{fifo}'"]):
        return peer()


def _webdataset(path: Path, fifo: Path) -> None:
    """As its users have it: it opens the FIFO itself."""
    with subprocess.Popen(["sh", "-c", f"exec cat '{path}' > '{fifo}'"]):
        exhaust(WebDataset(str(fifo), shardshuffle=False, empty_check=False))
