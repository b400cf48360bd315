"""Order, resumption, mixtures and threads: each sample once, in the same order for the same seed, resumed anywhere."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from format_channels import LINES, configured
from patience import wait_for
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from shuffled_channels import CHANNELS, EVERY, SHUFFLED, mixture, text_of, texts


@pytest.mark.parametrize("name", CHANNELS)
def test_shuffled_epoch_is_a_function_of_seed_and_epoch(environment: Environment, name: str) -> None:
    first = texts(environment, name, **SHUFFLED)
    assert sorted(first) == EVERY
    assert first != texts(environment, name)
    assert first == texts(environment, name, **SHUFFLED)
    others = [
        texts(environment, name, 1, **SHUFFLED),
        texts(environment, name, seed=8, block=10),
    ]
    assert all(sorted(other) == EVERY and other != first for other in others)


@pytest.mark.parametrize("reading", [{}, SHUFFLED, {"seed": 1, "block": 10_000}, {"seed": 1, "block_bytes": 5}])
@pytest.mark.parametrize("name", CHANNELS)
def test_shards_are_disjoint_and_together_complete(
    environment: Environment, name: str, reading: dict[str, Any]
) -> None:
    parts = [texts(environment, name, shard=Shard(index, 3), **reading) for index in range(3)]
    assert Counter(text for part in parts for text in part) == Counter(EVERY)


@pytest.mark.parametrize("reading", [{}, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", CHANNELS)
def test_resume_anywhere_yields_the_rest(environment: Environment, name: str, reading: dict[str, Any]) -> None:
    shard = Shard(1, 2)
    whole = texts(environment, name, 3, shard, **reading)
    for count in range(len(whole) + 1):
        with closing(open_channel(name, 3, environment=environment, shard=shard, **reading)) as samples:
            for _ in range(count):
                next(samples)
            state = json.loads(json.dumps(samples.state_dict()))
        with closing(open_channel(name, 3, environment=environment, shard=shard, **reading)) as samples:
            samples.load_state_dict(state)
            rest = list(map(text_of, samples))
        assert rest == whole[count:], count


def test_state_of_another_epoch_is_refused(environment: Environment) -> None:
    with closing(open_channel("tar", 3, environment=environment)) as samples:
        state = samples.state_dict()
    with (
        closing(open_channel("tar", 4, environment=environment)) as samples,
        pytest.raises(ChannelError, match="epoch 3"),
    ):
        samples.load_state_dict(state)


def test_mixture_follows_weights_and_yields_each_sample_once(environment: Environment) -> None:
    drawn = list(mixture(environment))
    assert sorted(drawn) == sorted([*EVERY, *(f"line {text}" for text in EVERY)])
    assert drawn == list(mixture(environment))
    assert drawn != list(mixture(environment, seed=1))
    tars = sum(not text.startswith("line") for text in drawn[:60])
    assert 35 <= tars <= 55, "three of four, while both last"


def threads_of(dataset: Any, **how: Any) -> ThreadLoader:
    return ThreadLoader(dataset, 4, num_workers=2, **how)


def test_threads_yield_the_same_batches_as_one_process(environment: Environment) -> None:
    dataset = ChannelDataset("tar", transform=text_of, environment=environment, **SHUFFLED)
    for drop_last in (False, True):
        dataset.set_epoch(0)
        batches = list(threads_of(dataset, drop_last=drop_last))
        dataset.set_epoch(0)
        assert batches == list(DataLoader(dataset, batch_size=4, drop_last=drop_last))


def test_threads_end_when_a_loop_is_left_and_raise_errors(environment: Environment) -> None:
    before = set(threading.enumerate())  # threads of earlier tests may still end
    dataset = ChannelDataset("tar", environment=environment)
    batches = iter(ThreadLoader(dataset, 1, num_workers=4))
    next(batches)
    assert set(threading.enumerate()) - before
    batches.close()
    wait_for(lambda: not set(threading.enumerate()) - before)

    def fail(sample: dict[str, Any]) -> str:
        if sample["txt"] == b"3-3":
            raise ValueError("this one is broken")
        return text_of(sample)

    dataset = ChannelDataset("tar", transform=fail, environment=environment)
    given: list[str] = []
    with pytest.raises(ValueError, match="this one is broken"):
        for batch in ThreadLoader(dataset, 1, num_workers=1):
            given += batch
    assert given == sorted(EVERY)[: sorted(EVERY).index("3-3")]
    wait_for(lambda: not set(threading.enumerate()) - before)


OTHERS: list[tuple[str, dict[str, Any], str]] = [
    (
        "tar",
        {"shard": Shard(0, 2)},
        "the state has no position of reader 0 of 2, and 2 readers read now; merge the states",
    ),
    (
        "tar",
        {"shard": Shard(1, 4)},
        "the state has no position of reader 0 of 2, and 4 readers read now; merge the states",
    ),
    ("lines", {}, "it has channel 'tar', format 'tar', but this reader has channel 'lines'"),
    ("tar", {"seed": 8, "block": 10}, "it has seed 7, but this reader has seed 8"),
    ("tar", {"block": 9}, "it has block 10, but this reader has block 9"),
    ("tar", {"seed": None}, "block_bytes 128000000, but this reader has seed None"),
    ("tar", {"format": "objects"}, "format"),
]


@pytest.mark.parametrize(("name", "how", "message"), OTHERS)
def test_state_of_something_else_is_refused(
    environment: Environment, name: str, how: dict[str, Any], message: str
) -> None:
    with closing(open_channel("tar", environment=environment, shard=Shard(1, 2), **SHUFFLED)) as samples:
        next(samples)
        state = samples.state_dict()
    how = {"shard": Shard(1, 2), **SHUFFLED, **how}
    with closing(open_channel(name, environment=environment, **how)) as samples, pytest.raises(ChannelError) as refused:
        samples.load_state_dict(state)
    assert message in str(refused.value)


@pytest.mark.parametrize("place", [0, 0.5, 1])
@pytest.mark.parametrize("reading", [{}, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", ["lines", "tar"])
def test_resume_with_changed_objects_is_refused(
    environment: Environment, name: str, reading: dict[str, Any], place: float
) -> None:
    """Nothing is repeated and nothing left out silently: in order, objects may change beyond the one that is being read."""
    with closing(open_channel(name, environment=environment, **reading)) as samples:
        before = [(text_of(sample), samples.state_dict()) for sample in samples]
    paths = sorted(path for path in environment.channels[name].path.rglob("*") if path.is_file())
    paths[round(place * (len(paths) - 1))].unlink()
    left = set(texts(environment, name))
    refused = 0
    for count, (_, state) in enumerate(before, 1):
        given = {text for text, _ in before[:count]}
        with closing(open_channel(name, environment=environment, **reading)) as samples:
            samples.load_state_dict(state)
            try:
                rest = list(map(text_of, samples))
            except ChannelError as error:
                assert "the data has changed; restart the epoch" in str(error)
                refused += 1
                continue
        assert given.isdisjoint(rest) and left <= given.union(rest), count
    assert refused or (not reading and place == 1)


def test_state_is_refused_after_the_first_sample(environment: Environment) -> None:
    with closing(open_channel("tar", environment=environment)) as samples:
        whole = samples.state_dict()
        next(samples)
        with pytest.raises(ChannelError, match="before the first sample is read"):
            samples.load_state_dict(whole)


@pytest.mark.parametrize("make", ["dataset", "threads", "mixture"])
def test_state_before_an_epoch_is_its_beginning(environment: Environment, make: str) -> None:
    dataset: Any = (
        mixture(environment) if make == "mixture" else ChannelDataset("tar", transform=text_of, environment=environment)
    )
    loader: Any = threads_of(dataset) if make == "threads" else dataset
    list(loader)
    dataset.set_epoch(1)
    states = [loader.state_dict()]
    iterator = iter(loader)
    states.append(loader.state_dict())
    iterator.close()
    whole = list(loader)
    for state in states:
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert list(loader) == whole != []


def test_pipe_in_a_mixture_with_several_readers_is_refused(tmp_path: Path) -> None:
    entry = {**LINES, "TrainingInputMode": "Pipe"}
    environment = configured(tmp_path, p=entry, q=entry)
    parts = [ChannelDataset(name, environment=environment) for name in ("p", "q")]
    with pytest.raises(ChannelError, match="a Pipe in a mixture must have one reader per host"):
        ThreadLoader(MixedDataset(parts), readers=2).state_dict()
