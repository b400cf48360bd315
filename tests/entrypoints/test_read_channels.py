"""read_channels as a process: what it prints and writes, in jobs of one and several ranks, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from format_channels import LINES as TEXT
from format_channels import configured, file_of
from launcher.bundled import SCRIPTS
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.formats import format_of
from sagemaker_channels.samples.digest import MODULUS, Tally

REPOSITORY = Path(__file__).parents[2]
LINES = [b"%d" % number for number in range(100)]
EXPECTED = Tally()
for line in LINES:
    EXPECTED.add({"data": line})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one channel by File and one by Pipe."""
    configured(tmp_path, file=TEXT, pipe={**TEXT, "TrainingInputMode": "Pipe"})
    (tmp_path / contract.CONFIG_DIR / "resourceconfig.json").write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]})
    )
    for number in range(10):
        (tmp_path / contract.DATA_DIR / f"file/{number}.txt").write_bytes(
            b"".join(line + b"\n" for line in LINES[number::10])
        )
    return tmp_path


def feed(root: Path, epoch: int) -> threading.Thread:
    fifo = root / contract.DATA_DIR / f"pipe_{epoch}"
    os.mkfifo(fifo)
    thread = threading.Thread(target=fifo.write_bytes, args=(b"".join(line + b"\n" for line in LINES),), daemon=True)
    thread.start()
    return thread


def run(root: Path, *arguments: str, python: tuple[str, ...] = (), **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *python, SCRIPTS / "read_channels.py", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY / "entrypoints"),
            "SAGEMAKER_BASE_DIR": str(root),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def results(process: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


def test_every_channel_and_epoch_is_read_without_torch(root: Path) -> None:
    feeders = [feed(root, epoch) for epoch in (0, 1)]
    # -S: nothing but the standard library. What is not ours among the hyperparameters does not matter.
    process = run(root, "--epochs", "2", "--epoch", "7", "--learning-rate", "-0.1", "x", python=("-S",))
    for feeder in feeders:
        feeder.join()
    found = results(process)
    assert [(result["channel"], result["epoch"]) for result in found] == [
        (c, e) for e in (0, 1) for c in ("file", "pipe")
    ]
    for result in found:
        assert (result["count"], result["bytes"], result["digest"]) == (EXPECTED.count, EXPECTED.bytes, EXPECTED.hex)
    assert "file by File, epoch 0: 100 samples, 0.0 MB in " in process.stdout
    written = root / contract.OUTPUT_DATA_DIR / "read_channels-algo-1-rank0.json"
    assert json.loads(written.read_text()) == found
    model = root / contract.MODEL_DIR / "read_channels-algo-1-rank0.json"
    assert json.loads(model.read_text()) == {"samples": 400, "bytes": 4 * EXPECTED.bytes}


def test_workers_read_channels(root: Path) -> None:
    feeder = feed(root, 0)
    found = results(run(root, "--num_workers", "2", "--batch-size", "7"))
    feeder.join()
    assert [result["digest"] for result in found] == [EXPECTED.hex] * 2


def test_ranks_report_shards_that_add_up(root: Path) -> None:
    feeder = feed(root, 0)
    variables = [{"RANK": n, "WORLD_SIZE": "2", "LOCAL_RANK": n, "LOCAL_WORLD_SIZE": "2"} for n in ("0", "1")]
    with ThreadPoolExecutor() as pool:  # a Pipe's shards are read side by side
        ranks = [
            row for process in pool.map(lambda environ: run(root, **environ), variables) for row in results(process)
        ]
    feeder.join()
    for name in ("file", "pipe"):
        parts = [result for result in ranks if result["channel"] == name]
        assert sum(part["count"] for part in parts) == 100
        assert sum(int(part["digest"], 16) for part in parts) % MODULUS == EXPECTED.digest
    assert [result["count"] for result in ranks] == [50, 50, 50, 50]


@pytest.mark.parametrize("names", ["file", '["file"]', "file,"])
def test_chosen_channels_are_read(root: Path, names: str) -> None:
    assert [result["channel"] for result in results(run(root, "--channels", names))] == ["file"]


def test_failures_are_one_line(root: Path) -> None:
    process = run(root, "--channels", "fiel")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == "read_channels: this job has no channel 'fiel'; it has file, pipe; did you mean 'file'?\n"
    process = run(root, "--channels", "file", "--num-workers", "2", python=("-S",))
    assert (
        process.stderr == "read_channels: DataLoader workers need torch: pip install torch, or set num-workers to 0\n"
    )


@pytest.mark.parametrize("name", ["csv", "parquet", "recordio-protobuf", "tfrecord-example"])
def test_formats_with_parsed_values_are_read(root: Path, name: str) -> None:
    form = format_of(name)
    configured(root, rows={"TrainingInputMode": "File", "ContentType": name})
    samples = [form.example(number, b"%d" % number) for number in range(3)]
    (root / contract.DATA_DIR / "rows/a").write_bytes(file_of(form, samples))
    (first, second) = results(run(root, "--epochs", "2"))
    assert (first["count"], first["digest"]) == (3, second["digest"])
    assert first["bytes"] > 0
