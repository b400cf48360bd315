"""How long a training waits while a checkpoint of 1 GB is saved to S3, beside the whole save: `run.py - checkpoint`.

The model and its optimizer are 576 tensors as a transformer has them. The server of S3 runs on this machine, and so takes part of
its cores. The first save, which takes new memory, does not count.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from far_store import far_store
from rounds import Row, interleaved, row
from s3torchconnector import S3Checkpoint
from torch import nn

from sagemaker_channels import Checkpoints

LAYERS, WIDTH = 12, 768


def training() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A transformer of 85 million parameters, trained by one step of Adam: 1.02 GB."""
    layers = [nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(1, 4, WIDTH)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


class _Ours:
    def __init__(self, parts: dict[str, Any], checkpoints: Checkpoints) -> None:
        self._parts, self._checkpoints = parts, checkpoints
        self._step = 0
        self.whole = 0.0

    def __call__(self) -> float:
        """Saves, and returns how long the caller waited; the end of the save is waited for."""
        self._step += 1
        start = time.perf_counter()
        self._checkpoints.save(self._step, **self._parts)
        blocked = time.perf_counter() - start
        self._checkpoints.wait()
        self.whole = time.perf_counter() - start
        return blocked


def _blocking(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Saves with the connector's S3Checkpoint, for which the training waits to the end."""
    start = time.perf_counter()
    with S3Checkpoint("us-east-1").writer("s3://bucket/checkpoint.pt") as writer:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, writer)
    return time.perf_counter() - start


def measure(folder: Path) -> Sequence[Row]:
    """The rows. The limit is one copy in memory that is in use already."""
    (folder / "s3/bucket").mkdir(parents=True)
    model, optimizer = training()
    source, target = torch.ones(1_020_000_000, dtype=torch.uint8), torch.ones(1_020_000_000, dtype=torch.uint8)
    with far_store(folder, 0.02), Checkpoints("s3://bucket/ours", keep=1) as checkpoints:
        ours = _Ours({"model": model, "optimizer": optimizer}, checkpoints)
        works: dict[str, Callable[[], float | None]] = {
            "ours": ours,
            "the whole save": lambda: ours.whole,
            "S3Checkpoint": lambda: _blocking(model, optimizer),
            "limit": lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), len(source)) and None,
        }
        found = interleaved(works)
    work = "checkpoint of 1 GB to S3, 20 ms latency: the training waits"
    return [row(work, found, "the whole save", 20), row(work, found, "S3Checkpoint", 20)]
