"""Pipes resume with any number of readers: only what is left is divided."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from patience import in_threads
from pipe_feeder import pipe
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.states import merge_states
from stateful_loaders import SHUFFLED, text_of

COUNT = 200
EVERY = sorted(f"0-{number}" for number in range(COUNT))


@pytest.mark.parametrize("reading", [{}, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("counts", [(1, 3, 2, 1), (4, 1, 8), (3, 2, 2), (8, 3, 4)])
def test_readers_of_any_number_continue_each_other(
    tmp_path: Path, counts: tuple[int, ...], reading: dict[str, Any]
) -> None:
    chance = random.Random(sum(counts))
    found: list[str] = []
    merged: Any = None
    for step, count in enumerate(counts):
        states: list[Any] = [None] * count
        lengths = [None if step == len(counts) - 1 else chance.randint(1, 70 // count) for _ in range(count)]

        with pipe(tmp_path / str(step), COUNT) as environment:

            def read(index: int) -> None:
                shard = Shard(index, count, count)  # noqa: B023 - the threads end in this round
                with open_channel("lines", environment=environment, shard=shard, **reading) as samples:
                    if merged is not None:  # noqa: B023
                        samples.load_state_dict(merged)  # noqa: B023
                    found.extend(map(text_of, islice(samples, lengths[index])))  # noqa: B023
                    states[index] = samples.state_dict()  # noqa: B023

            in_threads(read, count)
        merged = json.loads(json.dumps(merge_states(states)))
    assert sorted(found) == EVERY
    assert not any(merged["at"].values())
