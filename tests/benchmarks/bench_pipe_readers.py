"""A Pipe of 100 KB tar members by several readers of a host: DataLoader's workers and ranks, against reading it directly and `cat`.

Each of several readers gets the whole stream from the tee, and splits all of it. Ranks read without a loader, and a rank alone by
a ThreadLoader, which reads the FIFO itself.

Two figures, since DataLoader's queue is a limit of its own: `sizes` hands over a number for each sample, as a training does
that decodes in its workers to something small; `bytes` hands the bytes over. Processes are up before the time begins.

`cat` to one reader is a limit for two processes. What these five can reach with the machine's cores, if they do no more than copy
each byte once, is in the row beside `copies` (`pipe_copies.py`).
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipe_copies
from rounds import Row, interleaved, raw, row
from torch.utils.data import DataLoader

from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.formats import tar
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sample import Sample
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader

SIZE = 100_000
BATCH = 32


def measure(megabytes: int = 512) -> list[Row]:
    """Rows against direct reading (by one worker for `bytes`, by none for `sizes`), `cat` to a raw reader, and bare copies."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        shard = folder / "shard.tar"
        with shard.open("wb") as stream:
            payload = os.urandom(SIZE)
            tar.write(stream, ({"__key__": f"{n:06d}", "bin": payload} for n in range(10 * megabytes)))
        sizes = interleaved(
            {
                "ours": lambda: _loaded(folder, shard, 2, _size),
                "direct": lambda: _direct(folder, shard),
                "limit": lambda: _raw(folder, shard),
            }
        )
        whole = interleaved(
            {
                "ours": lambda: _loaded(folder, shard, 2, None),
                "direct": lambda: _loaded(folder, shard, 1, None),
                "copies": lambda: pipe_copies.seconds(folder, shard),
                "limit": lambda: _raw(folder, shard),
            }
        )
        ranks = interleaved(
            {
                "1": lambda: _threads(folder, shard),
                "2": lambda: _ranks(folder, shard, 2),
                "8": lambda: _ranks(folder, shard, 8),
                "limit": lambda: _raw(folder, shard),
            }
        )
    work = "Pipe, tar of 100 KB members, 2 workers"
    rows = []
    for what, found in (("sizes", sizes), ("bytes", whole)):
        peers = [peer for peer in ("direct", "limit", "copies") if peer in found]
        rows += [row(f"{work}, {what}", found, peer, 0) for peer in peers]
    rows.append(row(f"{work}, bare copies", {**whole, "ours": whole["copies"]}, "limit", 0))
    for count in ("1", "2", "8"):
        rows.append(row(f"Pipe, tar of 100 KB members, {count} rank(s)", {**ranks, "ours": ranks[count]}, "limit", 0))
    return [{**each, "megabytes": megabytes} for each in rows]


def _size(sample: Sample) -> int:
    return len(sample["bin"])


def _job(folder: Path) -> Environment:
    """A host with one Pipe, of its own: what was left open by another one would be in the way."""
    root = Path(tempfile.mkdtemp(dir=folder))
    (root / contract.CONFIG_DIR).mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir()
    config = {"train": {"TrainingInputMode": "Pipe", "ContentType": "application/x-tar"}}
    (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(config))
    return load_environment(root, {})


def _feed(environment: Environment, epoch: int, shard: Path) -> subprocess.Popen[bytes]:
    fifo = environment.data_dir / contract.fifo_name("train", epoch)
    os.mkfifo(fifo)
    return subprocess.Popen(["sh", "-c", f"exec cat '{shard}' > '{fifo}'"])


def _loaded(folder: Path, shard: Path, workers: int, transform: Callable[[Sample], Any] | None) -> float:
    environment = _job(folder)
    dataset = ChannelDataset("train", transform=transform, environment=environment)
    loader: DataLoader[Any] = DataLoader(
        dataset, BATCH, num_workers=workers, collate_fn=list, persistent_workers=True, multiprocessing_context="fork"
    )
    few = folder / "few.tar"
    with few.open("wb") as stream:
        tar.write(stream, ({"__key__": f"{n}", "bin": b"x"} for n in range(4)))
    with _feed(environment, 0, few):
        assert sum(len(batch) for batch in loader) == 4
    dataset.set_epoch(1)
    start = time.perf_counter()
    with _feed(environment, 1, shard):
        count = sum(len(batch) for batch in loader)
        seconds = time.perf_counter() - start
    assert count * SIZE > 0.98 * shard.stat().st_size
    return seconds


def _direct(folder: Path, shard: Path) -> float:
    environment = _job(folder)
    start = time.perf_counter()
    with _feed(environment, 0, shard):
        for sample in open_channel("train", environment=environment):
            _size(sample)
        return time.perf_counter() - start


def _threads(folder: Path, shard: Path) -> float:
    environment = _job(folder)
    loader = ThreadLoader(ChannelDataset("train", transform=_size, environment=environment), BATCH, num_workers=2)
    start = time.perf_counter()
    with _feed(environment, 0, shard):
        for _ in loader:
            pass
        return time.perf_counter() - start


def _ranks(folder: Path, shard: Path, count: int) -> float:
    environment, context = _job(folder), multiprocessing.get_context("fork")
    ready = context.Barrier(count + 1)
    ranks = [
        context.Process(target=_rank, args=(environment, Shard(rank, count, count), ready)) for rank in range(count)
    ]
    for rank in ranks:
        rank.start()
    ready.wait()
    start = time.perf_counter()
    with _feed(environment, 0, shard):
        for rank in ranks:
            rank.join()
        assert not any(rank.exitcode for rank in ranks)
        return time.perf_counter() - start


def _rank(environment: Environment, shard: Shard, ready: Any) -> None:
    ready.wait()
    for sample in open_channel("train", environment=environment, shard=shard):
        _size(sample)


def _raw(folder: Path, shard: Path) -> float:
    environment = _job(folder)
    start = time.perf_counter()
    with _feed(environment, 0, shard), (environment.data_dir / "train_0").open("rb", buffering=0) as stream:
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 1 << 20)
        raw(stream)
        return time.perf_counter() - start
