"""A small training to save and load: what the tests of checkpoints share."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn


class Loader:
    """A data position."""

    def __init__(self, position: int = 0) -> None:
        self.position = position

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "seen": torch.arange(self.position)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        assert torch.equal(state["seen"], torch.arange(self.position))


def parts(width: int = 8, *, seed: int = 0) -> dict[str, Any]:
    """A model with Adam, a scheduler and a loader."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": Loader()}


def step(of: dict[str, Any]) -> float:
    """Train a step on random images, and return the loss, which depends on everything that a checkpoint has."""
    of["optimizer"].zero_grad()
    loss = of["model"](torch.rand(6, 4) + random.random()).square().mean()
    loss.backward()
    of["optimizer"].step()
    of["scheduler"].step()
    of["loader"].position += 6
    return float(loss.detach())


def losses(of: dict[str, Any], count: int = 3) -> list[float]:
    """Train some steps, and return their losses."""
    return [step(of) for _ in range(count)]
