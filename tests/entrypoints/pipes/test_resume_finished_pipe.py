"""States of a Pipe epoch that one rank or all have read to its end."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from patience import in_threads
from pipe_feeder import pipe
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset
from stateful_loaders import LOADERS, SHUFFLED, given, read, stateful, text_of


def set_rank(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    """Make this process one of two ranks of its host."""
    for variable, value in (("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(variable, value)


def of_pipe(environment: Environment) -> ChannelDataset:
    return ChannelDataset("lines", transform=text_of, environment=environment)


@pytest.mark.parametrize("name", LOADERS)
def test_state_of_a_finished_pipe_yields_nothing_in_a_new_container(tmp_path: Path, name: str) -> None:
    with pipe(tmp_path / "first", 61) as environment:
        first = LOADERS[name](of_pipe(environment))
        assert sorted(read(first, 2)) == sorted(f"0-{number}" for number in range(61))
        state = pickle.dumps(first.state_dict())
        assert sorted(read(first, 3)) == sorted(f"1-{number}" for number in range(61))
    plans: list[list[int | None]] = [[3], [None], [2, 3]]
    for number, epochs in enumerate(plans):
        root = tmp_path / str(number)
        with pipe(root, 61) as environment:
            loader = LOADERS[name](of_pipe(environment))
            loader.load_state_dict(pickle.loads(state))
            *nothing, following = [read(loader, epoch) for epoch in epochs]
            assert nothing in ([], [[]])
            [fifo] = {text.partition("-")[0] for text in following}
            assert sorted(following) == sorted(f"{fifo}-{number}" for number in range(61))


@pytest.mark.parametrize("name", ["threads", "workers"])
def test_states_between_the_ends_of_two_shards_yield_the_rest(tmp_path: Path, name: str) -> None:
    with pipe(tmp_path / "first", 9) as environment:  # five samples and four: two batches and one
        first = LOADERS[name](of_pipe(environment))
        iterator = iter(first)
        before = [text for _ in range(2) for text in next(iterator)]
        states = [first.state_dict()]
        before.extend(next(iterator))
        states.append(first.state_dict())
        assert len(before) == 9
    for number, state in enumerate(states):
        root = tmp_path / str(number)
        with pipe(root, 9) as environment:
            loader = LOADERS[name](of_pipe(environment))
            loader.load_state_dict(pickle.loads(pickle.dumps(state)))
            assert given(loader) == before[8 + number :]
            assert len(read(loader, 1)) == 9


@pytest.mark.parametrize("reading", [{}, SHUFFLED], ids=["", "shuffled"])
def test_rank_that_finished_first_does_not_block_the_other_after_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: dict[str, Any]
) -> None:
    """The other rank waits until this one has asked for the epoch, too."""
    found: dict[tuple[int, str], list[list[str]]] = {}

    def loaders(environment: Environment) -> Iterator[Any]:
        for rank in ("0", "1"):
            set_rank(monkeypatch, rank)
            dataset = ChannelDataset("lines", transform=text_of, environment=environment, **reading)
            yield stateful(0)(dataset)

    with pipe(tmp_path / "first", 27) as environment:  # 14 samples and 13: four batches each, the last of 2 and of 1
        first = [*loaders(environment)]
        in_threads(lambda rank: found.update({(rank, "before"): [*islice(first[rank], (1, 4)[rank])]}), 2)
        states = [pickle.dumps(loader.state_dict()) for loader in first]
    with pipe(tmp_path / "second", 27) as environment:
        resumed = [*loaders(environment)]
        for loader, state in zip(resumed, states, strict=True):
            loader.load_state_dict(pickle.loads(state))
        in_threads(lambda rank: found.update({(rank, "after"): [*resumed[rank]]}), 2)
        assert [len(found[rank, "after"]) for rank in (0, 1)] == [3, 0]
        assert sorted(text for batches in found.values() for batch in batches for text in batch) == sorted(
            f"0-{number}" for number in range(27)
        )


def test_state_of_a_longer_pipe_is_refused(tmp_path: Path) -> None:
    with pipe(tmp_path / "first", 61) as environment:
        shard = Shard(1, 2)
        with closing(open_channel("lines", environment=environment, shard=shard)) as samples:
            for _ in range(10):
                next(samples)
            state = samples.state_dict()
    with (
        pipe(tmp_path / "second", 9) as environment,
        closing(open_channel("lines", environment=environment, shard=shard)) as samples,
    ):
        samples.load_state_dict(state)
        with pytest.raises(ChannelError, match="10 samples of this reader were begun, but there are 4"):
            next(samples)
