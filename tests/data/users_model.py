"""A module of a user's for the tests of train.py: it stops its own process, at the same place in every run."""

from __future__ import annotations

import os
import signal

import torch
from torch import nn

from train_parts import small_cnn


class Stopped(nn.Module):
    """A small CNN that sends SIGTERM to its own process in its n-th call on rank STOP_RANK, if STOP_AT is `train n` or `test n`."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = small_cnn(1, classes)
        self.calls = {"train": 0, "test": 0}

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        what = "train" if self.training else "test"
        self.calls[what] += 1
        here = os.environ.get("RANK", "0") == os.environ.get("STOP_RANK", "0")
        if here and f"{what} {self.calls[what]}" == os.environ.get("STOP_AT"):
            os.kill(os.getpid(), signal.SIGTERM)
        answers: torch.Tensor = self.network(images)
        return answers


def make(num_classes: int) -> nn.Module:
    return Stopped(num_classes)
