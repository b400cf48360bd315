"""What a checkpoint holds: parts, optimizers and tensors of each kind, and what it refuses to save or to load."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sagemaker_channels import Checkpoints
from sagemaker_channels.errors import ChannelError
from training_parts import losses, parts


def test_saving_and_loading_change_no_fresh_optimizer(tmp_path: Path) -> None:
    of, other = parts(), parts()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, **of)
        assert checkpoints.load(**of) == 0
    torch.manual_seed(1)
    random.seed(1)
    expected = losses(other)
    torch.manual_seed(1)
    random.seed(1)
    assert losses(of) == expected


def test_parts_may_be_loaded_alone(place: str) -> None:
    of = parts()
    with Checkpoints(place) as checkpoints:
        checkpoints.save(1, **of)
        other = parts(seed=1)
        assert checkpoints.load(model=other["model"]) == 1
        assert torch.equal(other["model"][0].weight, of["model"][0].weight)
        with pytest.raises(ChannelError, match=r"has no ema, but .*; load what it has, under these names"):
            checkpoints.load(model=other["model"], ema=other["model"])


def test_state_that_cannot_be_loaded_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> Any:
            return {"path": Path("/")}

    with Checkpoints(tmp_path) as checkpoints, pytest.raises(TypeError, match=r"loading it could run code: .*Path"):
        checkpoints.save(1, odd=Odd())


def test_tensors_whose_names_are_the_same_are_refused(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> Any:
            return {1: torch.ones(1), "1": torch.zeros(1)}

    with Checkpoints(tmp_path) as checkpoints, pytest.raises(ValueError, match=r"two tensors .* have the name odd\.1"):
        checkpoints.save(1, odd=Odd())


def test_other_model_is_refused(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, **parts())
        with pytest.raises(ChannelError, match=r"another training .*size mismatch.*; remove it, or give another place"):
            checkpoints.load(**parts(width=9))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adagrad])
def test_optimizers_and_unused_parameters_are_saved(tmp_path: Path, make: Any) -> None:
    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.ModuleDict({"used": nn.Linear(2, 2), "unused": nn.Linear(2, 2), "frozen": nn.Linear(2, 2)})
        model["frozen"].requires_grad_(False)
        wanted = [each for each in model.parameters() if each.requires_grad]
        return model, make([{"params": wanted[:2], "lr": 0.5}, {"params": wanted[2:]}], lr=0.1)

    def trained(model: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        for _ in range(2):
            optimizer.zero_grad()
            model["used"](torch.ones(1, 2)).sum().backward()
            optimizer.step()
        return torch.stack([each.detach().sum() for each in model.parameters()])

    model, optimizer = made()
    trained(model, optimizer)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, model=model, optimizer=optimizer)
        other, other_optimizer = made()
        assert checkpoints.load(model=other, optimizer=other_optimizer) == 1
    assert torch.equal(trained(model, optimizer), trained(other, other_optimizer))


def test_all_kinds_of_tensors_are_saved(tmp_path: Path) -> None:
    class Bag:
        def __init__(self, values: Any) -> None:
            self.values = values

        def state_dict(self) -> Any:
            return {"values": self.values}

        def load_state_dict(self, state: Any) -> None:
            self.values = state["values"]

    types = (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64)
    values = [torch.arange(6).reshape(2, 3).T.to(kind) for kind in types]
    odd = [
        torch.tensor(3.5),
        torch.zeros(0, 4),
        torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        (1, [None]),
    ]
    bag = Bag([*values, *odd])
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, bag=bag)
        loaded = Bag(None)
        assert checkpoints.load(bag=loaded) == 0
    assert loaded.values[-1] == (1, [None])
    for one, other in zip(bag.values[:-1], loaded.values[:-1], strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)
