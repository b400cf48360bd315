"""10 KB objects, 20 ms away, as tar shards, against s5cmd's copy of them to another prefix with as many requests at a time.

python tests/benchmarks/bench_resharding.py 200000    one round of so many
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from connector import client_alone
from far_store import far_store, fill
from rounds import ROUNDS, Row, interleaved, rate, row

from launcher.bundled import SCRIPTS
from sagemaker_channels import contract
from sagemaker_channels.samples.digest import Tally

SIZE, REQUESTS, ALLOWED_MB = 10_000, 64, 300.0
# A program's peak begins with the memory of the process that starts it, and the benchmarks before this one hold gigabytes.
_PEAK = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measure(folder: Path, count: int = 10_000, rounds: int = ROUNDS) -> list[Row]:
    """Return a row for the speed, if there is s5cmd, and one for the memory."""
    source = folder / "s3" / "bucket" / "small"
    fill(source, count, SIZE)
    expected = Tally()
    for file in source.iterdir():
        expected.add({"bin": file.read_bytes()})
    peaks: list[float] = []
    numbers = itertools.count()

    def reshard() -> int:
        output = f"out-{next(numbers)}"
        peaks.append(_peak(folder, f"s3://bucket/{output}"))
        index = json.loads((folder / "overlay/bucket" / output / "index.json").read_text())
        assert (index["count"], index["digest"]) == (count, expected.hex)
        return count

    def copy() -> int:
        target = f"s3://bucket/copy-{next(numbers)}/"
        options = ["--endpoint-url", os.environ["AWS_ENDPOINT_URL"], "--numworkers", str(REQUESTS), "--log", "error"]
        subprocess.run([str(s5cmd), *options, "cp", "s3://bucket/small/*", target], check=True)
        return count

    s5cmd = shutil.which(Path(os.environ.get("LAUNCHER_BENCH_PYTHON", "python")).with_name("s5cmd")) or shutil.which(
        "s5cmd"
    )
    works = {
        "ours": lambda: rate(reshard),
        "limit": lambda: rate(lambda: client_alone("small", "bin", count, None)[0]),
        **({"s5cmd": lambda: rate(copy)} if s5cmd else {}),
    }
    with far_store(folder, 0.02):
        found = interleaved(works, rounds)
    rows = [row("resharding 10 KB objects, 20 ms latency", found, "s5cmd", 0.5, unit="objects/s")] if s5cmd else []
    memory = {"ours": peaks, "limit": [ALLOWED_MB] * len(peaks)}
    return [*rows, row("memory of resharding, with the imports", memory, "limit", 1, unit="MB")]


def _peak(folder: Path, output: str) -> float:
    """Run the script as `launch reshard` does, and return its peak memory in MB."""
    root = folder / "ml"
    (root / contract.CONFIG_DIR).mkdir(parents=True, exist_ok=True)
    (root / contract.CONFIG_DIR / "inputdataconfig.json").write_text("{}")
    channel = {"channel": "data", "s3_uri": "s3://bucket/small/", "style": "iterable"}
    environ = {
        **os.environ,
        contract.BASE_DIR_VARIABLE: str(root),
        f"{contract.CONNECTOR_VARIABLE}0": json.dumps(channel),
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    command = [sys.executable, str(SCRIPTS / "reshard.py"), "--output", output, "--source", "s3://bucket/small/"]
    done = subprocess.run([sys.executable, "-c", _PEAK, *command], env=environ, stdout=subprocess.PIPE, check=True)
    return int(done.stdout.split()[-1]) / 1024


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for found_row in measure(Path(place), int(sys.argv[1]), 1):
            print(found_row)
