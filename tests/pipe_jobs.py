"""Training processes of their own that read a Pipe, for the tests of FIFOs' numbers and of resuming."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

from forked import TORCH, Forked
from torch_ranks import torch_ranks

COUNT = 600  # lines of an epoch: the number of its FIFO, and the line's


def lines_of(fifo: int) -> bytes:
    return b"".join(b"%d %d\n" % (fifo, number) for number in range(COUNT))


def words(samples: Any) -> list[list[int]]:
    return [list(map(int, sample["data"].split())) for sample in samples]


def epoch_of(fifo: int) -> list[list[int]]:
    return [[fifo, number] for number in range(COUNT)]


def _script(root: Path, text: str) -> Path:
    """Write a script, whose `report` prints a line of JSON."""
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
    file.write_text(textwrap.dedent(begin) + textwrap.dedent(text))
    return file


def _variables(root: Path) -> dict[str, str]:
    library = str(Path(__file__).parents[1] / "entrypoints")
    return {"PYTHONPATH": library, "SAGEMAKER_BASE_DIR": str(root)}


def job(root: Path, script: str, *arguments: str) -> Forked:
    """Start a training process."""
    return Forked(TORCH, [_script(root, script), *arguments], environ={**os.environ, **_variables(root)})


def job_of_ranks(root: Path, script: str, *arguments: str) -> list[Any]:
    """Return the lines that two ranks have printed, once they have ended."""
    done = torch_ranks(2, str(_script(root, script)), *arguments, cwd=root, environ=_variables(root))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
