"""Numbers that name an order or an epoch: numpy's are as good as Python's, and what is none is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format_channels import lines_channel
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.reading import Reading
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A channel of 36 lines."""
    return lines_channel(tmp_path, "lines", 4, 9)


def test_numpy_numbers_become_python_numbers(environment: Environment) -> None:
    def opened(number: Callable[[int], Any]) -> Any:
        reading = {"seed": number(7), "block": number(10), "block_bytes": number(1000)}
        return open_channel("lines", number(3), environment=environment, **reading)

    samples = opened(np.int64)
    before = [next(samples) for _ in range(14)]
    state = json.loads(json.dumps(samples.state_dict()))
    samples.close()
    whole = list(opened(int))
    assert before == whole[:14]
    again = opened(np.int32)
    again.load_state_dict(state)
    assert list(again) == whole[14:]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "x"),
        ("seed", 1.5),
        ("seed", True),
        ("block", 1.5),
        ("block", 0),
        ("block", np.float64(3)),
        ("block_bytes", 0),
        ("block_bytes", "1"),
    ],
)
def test_reading_without_whole_numbers_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is .*; give a whole number"):
        Reading(**{name: value})


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", None, True])
def test_epoch_that_is_not_a_number_is_refused(environment: Environment, epoch: Any) -> None:
    with pytest.raises(ValueError, match=r"^epoch is .*; give a whole number from 0 on"):
        open_channel("lines", epoch, environment=environment)
    with pytest.raises(ValueError, match=r"^epoch is .*; give a whole number from 0 on"):
        ChannelDataset("lines", environment=environment).set_epoch(epoch)
