"""Epochs that are read by changing numbers of readers: what each reader yields, and where it stops, is random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import islice
from typing import Any

from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.epoch.states import is_finished, merge_states

Open = Callable[[Shard], Samples]
MOST_READERS = (1, 2, 3, 4, 8, 40)


def lives(
    chance: random.Random, opened: Open, name: Callable[[Any], str], numbers: tuple[int, ...] = MOST_READERS
) -> tuple[list[str], str]:
    """Read an epoch by several numbers of readers, each after some of the samples that the one before has left.

    Returns:
        What was read, and the story of the lives, for a failure.
    """
    found, story = list[str](), ""
    state: Any = None
    for life in range(chance.randrange(1, 6) + 1):
        is_last = life == 5 or chance.random() < 0.2
        readers = chance.choice(numbers)
        states = []
        story += f"; {readers}:"
        for index in range(readers):
            with opened(Shard(index, readers)) as samples:
                if state is not None:
                    samples.load_state_dict(state)
                most = None if is_last else chance.choice([0, 1, 2, 3, 7, 20, None])
                read = [name(sample) for sample in islice(samples, most)]
                found += read
                states.append(samples.state_dict())
                story += f" {len(read)}/{most}"
        if is_last:
            return found, story
        state = json.loads(json.dumps(merge_states(chance.sample(states, len(states)))))
    readers = chance.choice(numbers)
    for index in range(readers):
        with opened(Shard(index, readers)) as samples:
            samples.load_state_dict(state)
            found += [name(sample) for sample in samples]
    return found, story


def interrupted(chance: random.Random, opened: Open, name: Callable[[Any], str], shard: Shard) -> list[str]:
    """Read one reader's samples with interruptions, after each of which the same reader continues at its state."""
    found, state = list[str](), None
    while True:
        with opened(shard) as samples:
            if state is not None:
                samples.load_state_dict(state)
            most = chance.choice([0, 1, 2, 5, 11])
            found += [name(sample) for sample in islice(samples, most)]
            state = json.loads(json.dumps(samples.state_dict()))
            if is_finished(state) or next(samples, None) is None:
                return found
