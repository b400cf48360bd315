"""100 KB samples in 100 MB shards on a local disk, in batches: our loaders beside webdataset, litdata and mosaicml-streaming.

Each runs in a process of its own (`loaders.py`), the last two in the Python that LAUNCHER_BENCH_PYTHON names. All read the
same bytes, from the files that their own writers make of them. The limit is reading the files; `queue` is a DataLoader whose
workers read nothing and hand over such batches pickled, as the peers' do. Files are in the kernel's memory after the first round,
so it is the loaders that are measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from loaders import SAMPLES, SHARD_SAMPLES, SIZE, sample_bytes
from local_job import mounted_job, train_folder
from rounds import Peer, Row, interleaved, row

from sagemaker_channels.formats import tar

SCRIPT = Path(__file__).with_name("loaders.py")
TARGETS = {"webdataset": (1.3, 3), "litdata": (1.3, 3), "mosaicml-streaming": (4, 3)}  # of a DataLoader, of threads


def measure(folder: Path) -> list[Row]:
    """Rows for both of our loaders against each peer; `folder` takes 2.5 GB. Without LAUNCHER_BENCH_PYTHON, webdataset only."""
    python = os.environ.get("LAUNCHER_BENCH_PYTHON")
    mounted_job(folder / "job", "application/x-tar")
    for start in range(0, SAMPLES, SHARD_SAMPLES):
        numbers = range(start, start + SHARD_SAMPLES)
        with (train_folder(folder / "job") / f"{start:06d}.tar").open("wb") as stream:
            tar.write(stream, ({"__key__": f"{number:06d}", "bin": sample_bytes(number)} for number in numbers))
    pythons = dict.fromkeys(("ours", "threads", "queue", "raw", "webdataset"), sys.executable)
    if python is not None:
        subprocess.run(
            [python, SCRIPT, "make", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        pythons |= dict.fromkeys(("litdata", "mosaicml-streaming"), python)
    with ExitStack() as stack:
        found = interleaved(
            {
                kind: stack.enter_context(closing(Peer(python, SCRIPT.read_text(), kind, str(folder))))
                for kind, python in pythons.items()
            }
        )
    rates = {kind: [SAMPLES * SIZE / 1e6 / each for each in seconds] for kind, seconds in found.items()}
    ours = {"DataLoader, 2 workers": "ours", "ThreadLoader, 2 threads": "threads"}
    rows = []
    for number, (work, kind) in enumerate(ours.items()):
        found_rates = {**rates, "ours": rates[kind], "limit": rates["raw"]}
        for peer, targets in TARGETS.items():
            if peer in rates:
                rows.append(row(f"mounted tar, {work}", found_rates, peer, targets[number], unit="MB/s"))
    rows.append(row("mounted tar, DataLoader, 2 workers", {**rates, "limit": rates["raw"]}, "queue", 0, unit="MB/s"))
    return rows
