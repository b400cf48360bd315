"""The connector against its own datasets: small objects far away, random access, big objects near by."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from far_store import connector_channel, far_store, fill
from rounds import ROUNDS, Row, exhaust, interleaved, rate, row

SMALL, BIG = 100_000, 64 << 20
BATCH, WORKERS = 64, 2


def measure(folder: Path) -> list[Row]:
    """Return five rows; `folder` takes some 800 MB."""
    fill(folder / "s3" / "bucket" / "small", 3000, SMALL)
    fill(folder / "s3" / "bucket" / "big", 8, BIG)
    rows, even, waits = [], [], []  # type: tuple[list[Row], list[float], list[float]]
    with far_store(folder, 0.02):
        found = interleaved(
            {
                "ours": lambda: rate(lambda: _ours(folder, "small", 3000)[0]),
                "batches": lambda: rate(lambda: _batches(folder, 3000, even)),
                "S3IterableDataset": lambda: rate(lambda: _iterable("small", 60)[0]),
                "limit": lambda: rate(lambda: client_alone("small", "bin", 3000, None)[0]),
            }
        )
        rows.append(row("connector, 100 KB objects, 20 ms latency", found, "S3IterableDataset", 15, unit="objects/s"))
        found = interleaved(
            {
                "ours": lambda: _loader(_our_map(folder), 40),
                "S3MapDataset": lambda: _loader(_their_map(), 8),
                "limit": lambda: _loader(_ClientAlone, 40),
            }
        )
        rows.append(row("map style, DataLoader(2 workers, batch 64)", found, "S3MapDataset", 10, unit="objects/s"))
    with far_store(folder, 0.02, late_share=0.01):
        found = interleaved(
            {
                "ours": lambda: rate(lambda: _batches(folder, 3000, waits)),
                "threads": lambda: rate(lambda: client_alone("small", "bin", 3000, None)[0]),
            }
        )
        rows.append(row("1 % of answers 500 ms late", found, "threads", 0.9, unit="objects/s"))
        late = {"ours": [_p99(waits)], "3 medians": [3 * statistics.median(waits)], "limit": [_p99(even)]}
        rows.append(row("1 % of answers 500 ms late: p99 of a batch of 64", late, "3 medians", 1))
    with far_store(folder, 0):
        found = interleaved(
            {
                "ours": lambda: rate(lambda: _ours(folder, "big", 8)[1] / 1e6),
                "S3IterableDataset": lambda: rate(lambda: _iterable("big", 8)[1] / 1e6),
                "limit": lambda: rate(lambda: client_alone("big", "bin", 8, BIG)[1] / 1e6),
            }
        )
        rows.append(row("connector, 64 MiB objects, no latency", found, "S3IterableDataset", 1.2, unit="MB/s"))
    return rows


def _ours(folder: Path, prefix: str, count: int) -> tuple[int, int]:
    from sagemaker_channels import open_channel

    samples = open_channel("train", environment=connector_channel(folder, f"s3://bucket/{prefix}/"))
    return _count(sample["data"] for sample in islice(samples, count))


def _batches(folder: Path, count: int, waits: list[float]) -> int:
    """Read objects in batches of 64, and keep how many seconds each batch takes, except the first one."""
    from sagemaker_channels import open_channel

    samples = open_channel("train", environment=connector_channel(folder, "s3://bucket/small/"))
    for number in range(count // BATCH):
        start = time.perf_counter()
        exhaust(islice(samples, BATCH))
        if number:
            waits.append(time.perf_counter() - start)
    return count // BATCH * BATCH


def _p99(waits: list[float]) -> float:
    """The 99th percentile, without the round that does not count."""
    return sorted(waits[len(waits) // (ROUNDS + 1) :])[int(0.99 * len(waits) * ROUNDS / (ROUNDS + 1))]


def _iterable(prefix: str, count: int) -> tuple[int, int]:
    from s3torchconnector import S3IterableDataset

    dataset: Any = S3IterableDataset.from_prefix(f"s3://bucket/{prefix}/", **_connection())
    return _count(item.read() for item in islice(dataset, count))


def client_alone(prefix: str, ending: str, count: int, size: int | None) -> tuple[int, int]:
    """What the client gives threads that only fetch, whole objects or, with a size, ranges: nothing in order, nothing kept."""
    from sagemaker_channels.sources import s3_client

    piece = 8 << 20
    ranges = [(None, None)] if size is None else [(start, min(start + piece, size)) for start in range(0, size, piece)]
    work = iter([(f"{prefix}/{number:06d}.{ending}", *part) for number in range(count) for part in ranges])
    lock = threading.Lock()
    found = [0, 0]

    def run() -> None:
        while True:
            with lock:
                job = next(work, None)
            if job is None:
                return
            size = len(s3_client.fetch("bucket", *job))
            with lock:
                found[0] += 1
                found[1] += size

    threads = [threading.Thread(target=run) for _ in range(64 if size is None else 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found[0], found[1]


def _our_map(folder: Path) -> Callable[[], Any]:
    from sagemaker_channels import ChannelMapDataset

    return lambda: ChannelMapDataset("train", environment=connector_channel(folder, "s3://bucket/small/"))


def _their_map() -> Callable[[], Any]:
    from s3torchconnector import S3MapDataset

    dataset: Any = S3MapDataset
    return lambda: dataset.from_prefix("s3://bucket/small/", transform=_read, **_connection())


def _read(reader: Any) -> bytes:
    data: bytes = reader.read()
    return data


class _ClientAlone:
    """What the client gives the workers' threads that only fetch a batch: nothing compared, nothing handed over."""

    _threads: ThreadPoolExecutor | None = None

    def __getitems__(self, indices: list[int]) -> list[int]:
        from sagemaker_channels.sources import s3_client

        self._threads = self._threads or ThreadPoolExecutor(64)
        keys = [f"small/{index:06d}.bin" for index in indices]
        return list(self._threads.map(lambda key: len(s3_client.fetch("bucket", key, None, None)), keys))


def _loader(make: Callable[[], Any], batches: int) -> float:
    """Objects per second, from when each of the workers has given its first batch."""
    from torch.utils.data import DataLoader, Subset

    subset: Any = Subset(make(), range(BATCH * (batches + WORKERS)))
    loader: DataLoader[Any] = DataLoader(
        subset, BATCH, num_workers=WORKERS, collate_fn=list, multiprocessing_context="fork"
    )
    iterator = iter(loader)
    for _ in range(WORKERS):
        next(iterator)
    start = time.perf_counter()
    count = sum(len(batch) for batch in iterator)
    return count / (time.perf_counter() - start)


def _count(pieces: Iterator[bytes]) -> tuple[int, int]:
    count = size = 0
    for piece in pieces:
        count += 1
        size += len(piece)
    return count, size


def _connection() -> dict[str, Any]:
    """The arguments of the connector's own datasets for this store."""
    from s3torchconnector import S3ClientConfig

    from sagemaker_channels.sources.connector_client import place

    endpoint, region = place(_environ())
    return {"region": region, "endpoint": endpoint, "s3client_config": S3ClientConfig(force_path_style=True)}


def _environ() -> dict[str, str]:
    import os

    return dict(os.environ)
