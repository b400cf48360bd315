"""Every benchmark, one after the other: `python tests/benchmarks/run.py docs/benchmarks.md` (make bench); some minutes.

Prints each row as it is found, and writes results.json beside this file, docs/speed.svg, and the tables into the page; `-` in
its place writes nothing. Names behind it run these only, and leave the others' rows as they were: `... - loaders cache`.
LAUNCHER_BENCH_PYTHON, LAUNCHER_SDK_V2_PYTHON and AWS_COMMAND name the peers' environments; rows of peers that are not there are
left out.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import bench_cache
import bench_checkpoint
import bench_decoding
import bench_listing
import bench_loaders
import bench_memory
import bench_pipe_readers
import bench_recordio_protobuf
import bench_resharding
import bench_resume
import bench_sequential
import bench_tfrecord
import connector
import far_files
import shards
from chart import draw
from rounds import ROUNDS, Row
from table import HEADINGS, line, measured, write_table

# Each gets a folder of its own, on the disk.
BENCHMARKS: Mapping[str, Callable[[Path], Sequence[Row]]] = {
    "sequential": lambda folder: bench_sequential.measure(),
    "tfrecord": lambda folder: bench_tfrecord.measure(),
    "recordio-protobuf": lambda folder: bench_recordio_protobuf.measure(),
    "pipe": lambda folder: bench_pipe_readers.measure(),
    "connector": connector.measure,
    "listing": bench_listing.measure,
    "shards": shards.measure,
    "far-files": far_files.measure,
    "loaders": bench_loaders.measure,
    "decoding": bench_decoding.measure,
    "cache": bench_cache.measure,
    "checkpoint": bench_checkpoint.measure,
    "reshard": bench_resharding.measure,
    "resume": bench_resume.measure,
    "memory": bench_memory.measure,
}
HERE = Path(__file__).parent
PACKAGES = ("torch", "numpy", "pyarrow", "s3torchconnector", "webdataset", "tfrecord")
PEERS = ("litdata", "mosaicml-streaming", "awscli", "s5cmd")


def main() -> None:
    """Run what was asked for."""
    readme, chosen = sys.argv[1], sys.argv[2:] or list(BENCHMARKS)
    machine = facts()
    print(measured(machine), HEADINGS, sep="\n\n", flush=True)
    results = HERE / "results.json"
    known = json.loads(results.read_text())["rows"] if sys.argv[2:] and results.exists() else []
    rows: dict[str, list[Row]] = {name: [row for row in known if row["benchmark"] == name] for name in BENCHMARKS}
    for name in chosen:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            rows[name] = [{"benchmark": name, **row} for row in BENCHMARKS[name](Path(folder))]
        print("\n".join(map(line, rows[name])), flush=True)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if readme != "-":  # each time, so that what fails later takes nothing away
            found = [row for of_one in rows.values() for row in of_one]
            results.write_text(json.dumps({"machine": machine, "rows": found}, indent=1) + "\n")
            draw(found, HERE.parents[1] / "docs/speed.svg")
            write_table(Path(readme), machine, found)


def facts() -> dict[str, Any]:
    """What the figures were measured on."""
    model = next((text.partition(":")[2].strip() for text in _proc("cpuinfo") if text.startswith("model name")), "")
    memory = next((int(text.split()[1]) for text in _proc("meminfo") if text.startswith("MemTotal")), 0)
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "processor": model or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e6),
        "load_at_start": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "rounds": ROUNDS,
        "versions": {
            **_versions(sys.executable, PACKAGES),
            **_versions(os.environ.get("LAUNCHER_BENCH_PYTHON"), PEERS),
        },
    }


def _proc(name: str) -> list[str]:
    path = Path("/proc") / name
    return path.read_text().splitlines() if path.exists() else []


def _versions(python: str | None, packages: Sequence[str]) -> dict[str, str]:
    if python is None:
        return {}
    if python == sys.executable:
        return {name: metadata.version(name) for name in packages}
    script = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    printed = subprocess.run([python, "-c", script, *packages], stdout=subprocess.PIPE, check=True, text=True).stdout
    return dict(zip(packages, printed.split(), strict=True))


if __name__ == "__main__":
    main()
