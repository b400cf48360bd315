"""Training processes of their own that read a Pipe, for the tests of FIFOs' numbers and of resuming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from patience import PATIENCE
from sagemaker_channels import contract

COUNT = 600  # lines of an epoch: the number of its FIFO, and the line's


def lines_of(fifo: int) -> bytes:
    return b"".join(b"%d %d\n" % (fifo, number) for number in range(COUNT))


def words(samples: Any) -> list[list[int]]:
    return [list(map(int, sample["data"].split())) for sample in samples]


def epoch_of(fifo: int) -> list[list[int]]:
    return [[fifo, number] for number in range(COUNT)]


def job(root: Path, script: str, *arguments: str, ranks: int = 0) -> subprocess.Popen[str]:
    """Start a training process, whose `report` prints a line of JSON."""
    begin = """
        import json, os, pickle, signal, sys, warnings
        warnings.simplefilter("ignore")
        from pathlib import Path
        from torch.utils.data import DataLoader
        from sagemaker_channels.torch_data.worker_loader import WorkerLoader
        from sagemaker_channels.torch_data.dataset import ChannelDataset

        def report(what):
            sys.stdout.write(json.dumps(what) + "\\n")
            sys.stdout.flush()

        def words(sample):
            return list(map(int, sample["data"].split()))
    """
    file = root / f"script{len(list(root.glob('script*')))}.py"
    file.write_text(textwrap.dedent(begin) + textwrap.dedent(script))
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1] / "entrypoints"),
        "SAGEMAKER_BASE_DIR": str(root),
    }
    environ |= {"OMP_NUM_THREADS": "1", contract.FIFO_WAIT_VARIABLE: str(PATIENCE)}
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks else []
    return subprocess.Popen(
        [sys.executable, *torchrun, str(file), *arguments], env=environ, stdout=subprocess.PIPE, text=True
    )


def end_of(process: subprocess.Popen[str]) -> list[Any]:
    """The lines that it has printed, once it has ended."""
    with process:
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]
