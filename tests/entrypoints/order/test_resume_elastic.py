"""States merge, and any number of ranks, workers and threads resumes from them: each sample once per epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import sagemaker_channels
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.order.merging import merge_states
from sagemaker_channels.order.sampling import Reading
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.samples.channel import open_channel
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.mixed import MixedDataset
from sagemaker_channels.torch_data.ranks import gather_state, load_state
from shuffled_channels import CHANNELS, EVERY, SHUFFLED, as_stored, text_of, texts

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11 asks torch 2.13 for it
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
COUNTS = [1, 2, 3, 4, 8]
READINGS = [None, SHUFFLED, Reading(seed=3, block=1), Reading(seed=3, block=25)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(CHANNELS)),
    reading=st.sampled_from(READINGS),
    counts=st.lists(st.sampled_from(COUNTS), min_size=2, max_size=4),
    chance=st.randoms(use_true_random=False),
)
def test_shards_interrupted_anywhere_yield_each_sample_once(
    environment: Environment, name: str, reading: Reading | None, counts: list[int], chance: random.Random
) -> None:
    """Some readers are interrupted before they have begun."""
    found: list[str] = []
    merged = None
    for step, count in enumerate(counts):
        states: list[Any] = []
        for index in range(count):
            if step < len(counts) - 1 and chance.random() < 0.3:
                states.append(merged or {"epoch": 0})
                continue
            with open_channel(name, environment=environment, shard=Shard(index, count), reading=reading) as samples:
                if merged is not None:
                    samples.load_state_dict(merged)
                until = None if step == len(counts) - 1 else chance.choice([0, 1, 5, 12, 40])
                found += [text_of(sample) for sample in islice(samples, until)]
                states.append(samples.state_dict())
        merged = as_stored(merge_states(as_stored(states)))
        if merged.get("finished"):
            break
        merged = merged if "version" in merged else None
    assert sorted(found) == EVERY


def loaders(environment: Environment, reading: Reading | None, kind: str, size: int) -> Any:
    """A loader of this process's rank with so many threads or workers, and what loads a merged state."""
    dataset = ChannelDataset("tar", transform=text_of, environment=environment, reading=reading)
    if kind == "threads":
        loader = ThreadLoader(dataset, 3, threads=size, collate=list)
        return loader, loader.load_state_dict
    if kind == "stateful":
        stateful: Any = StatefulDataLoader(dataset, 3, num_workers=size, collate_fn=list)
        return stateful, dataset.load_state_dict
    return dataset, dataset.load_state_dict


PLANS: list[list[tuple[str, int, int]]] = [  # kind of loader, ranks, and threads or workers
    [("threads", 2, 2), ("threads", 1, 3), ("stateful", 3, 0)],
    [("stateful", 1, 2), ("threads", 4, 1), ("dataset", 2, 1)],
    [("dataset", 3, 1), ("stateful", 2, 2), ("threads", 1, 4)],
    [("threads", 8, 2), ("stateful", 1, 0), ("threads", 2, 2)],
]


@pytest.mark.parametrize("reading", [None, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("plan", PLANS)
def test_loaders_of_any_kind_and_number_continue_each_other(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    plan: list[tuple[str, int, int]],
    reading: Reading | None,
) -> None:
    found: list[str] = []
    merged = None
    for step, (kind, ranks, size) in enumerate(plan):
        states = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            loader, load = loaders(environment, reading, kind, size)
            if merged is not None:
                load(merged)
            is_late = rank == 1 and step < len(plan) - 1  # interrupted before it begins
            batches = () if is_late else iter(loader)
            most = None if step == len(plan) - 1 else 10 if kind == "dataset" else 4
            for batch in islice(batches, most):
                found += [batch] if isinstance(batch, str) else batch
            states.append(as_stored(loader.state_dict()) if kind != "stateful" else loader.state_dict())
        merged = as_stored(merge_states(states))
        if merged["finished"]:
            break  # loaded again, it would begin the next epoch
    assert sorted(found) == EVERY
    assert merged is not None and merged["finished"]


@pytest.mark.parametrize("reading", [None, SHUFFLED], ids=["in order", "shuffled"])
def test_as_many_ranks_as_before_continue_in_the_same_order(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, reading: Reading | None
) -> None:
    """Even threads and ranks may change places: what counts is the number of shards."""

    def ranks(threads: int) -> Iterator[ThreadLoader]:
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", "2")
            yield loaders(environment, reading, "threads", threads)[0]

    whole = [list(loader) for loader in ranks(2)]
    first, states = [], []
    for loader in ranks(2):
        first.append(list(islice(loader, 3)))  # an odd number: the second thread is next
        states.append(loader.state_dict())
    merged = as_stored(merge_states(states))
    for rank, loader in enumerate(ranks(2)):
        loader.load_state_dict(merged)
        assert first[rank] + list(loader) == whole[rank]


@pytest.mark.parametrize("kind", ["threads", "threads over a dataset", "plain", "stateful"])
def test_epoch_after_a_merged_state_is_whole(environment: Environment, kind: str) -> None:
    first, _ = loaders(environment, SHUFFLED, "threads", 2)
    first.dataset.set_epoch(2)
    before = [text for batch in islice(first, 6) for text in batch]
    merged = as_stored(gather_state(first))
    dataset = ChannelDataset("tar", transform=text_of, environment=environment, reading=SHUFFLED)
    loader: Any
    if "threads" in kind:
        loader = ThreadLoader(dataset, 4, threads=3, collate=list)
    else:
        loader = (DataLoader if kind == "plain" else StatefulDataLoader)(dataset, 4, num_workers=3, collate_fn=list)
    load_state(dataset if "dataset" in kind else loader, merged)
    assert dataset.epoch == 2
    rest = [text for batch in loader for text in batch]
    assert sorted(before + rest) == EVERY
    again = [text for batch in loader for text in batch]
    assert sorted(again) == EVERY, "the same epoch, from its beginning"
    dataset.set_epoch(3)
    assert sorted(text for batch in loader for text in batch) == EVERY


@pytest.mark.parametrize("is_mixed", [False, True])
def test_rank_whose_workers_ended_with_a_whole_batch_has_not_begun_the_next_epoch(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, is_mixed: bool
) -> None:
    """The state of such a worker is that of its last batch, at which it did not know that there are no more."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    found, states = list[str](), []
    for rank, most in enumerate((0, 2)):
        monkeypatch.setenv("RANK", str(rank))
        part = ChannelDataset("tar", transform=text_of, environment=environment, reading=SHUFFLED)
        dataset = MixedDataset({part: 1.0}) if is_mixed else part
        loader: Any = StatefulDataLoader(dataset, 5, num_workers=1, collate_fn=list)
        assert len(list(loader)) == (8, 6)[rank]
        if most:
            dataset.set_epoch(1)
            found += chain.from_iterable(islice(loader, most))
        states.append(loader.state_dict())
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    part = ChannelDataset("tar", transform=text_of, environment=environment, reading=SHUFFLED)
    dataset = MixedDataset({part: 1.0}) if is_mixed else part
    dataset.load_state_dict(as_stored(merge_states(states)))
    assert dataset.epoch == 1
    assert sorted([*found, *dataset]) == EVERY


def mixture(environment: Environment, **how: Any) -> MixedDataset:
    parts = {
        ChannelDataset("tar", transform=text_of, environment=environment, reading=SHUFFLED): 3.0,
        ChannelDataset("lines", transform=lambda sample: f"line {text_of(sample)}", environment=environment): 1.0,
    }
    return MixedDataset(parts, **how)


def test_mixtures_of_any_number_continue_each_other(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    merged = None
    for step, (ranks, threads) in enumerate([(2, 2), (3, 1), (1, 4), (4, 1), (2, 2)]):
        states = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            loader = ThreadLoader(mixture(environment), 3, threads=threads, collate=list)
            if merged is not None:
                loader.load_state_dict(merged)
            if rank == step < 4:  # interrupted before it begins
                states.append(loader.state_dict())
                continue
            found += [text for batch in islice(loader, None if step == 4 else 4) for text in batch]
            states.append(loader.state_dict())
        merged = as_stored(merge_states(as_stored(states)))
    assert sorted(found) == sorted([*EVERY, *(f"line {text}" for text in EVERY)])


def test_mixture_of_fixed_shards_continues_on_other_ranks(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which channels have ended for a rank says nothing about the same rank of another number."""
    reading = Reading(shards=12)
    found: list[str] = []
    merged = None
    for ranks, most in ((2, [None, 5]), (3, [None] * 3)):
        states = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            parts = [
                ChannelDataset(n, None, text_of, environment=environment, reading=reading) for n in ("tar", "lines")
            ]
            dataset = MixedDataset(dict.fromkeys(parts, 1.0))
            if merged is not None:
                dataset.load_state_dict(merged)
            found += islice(dataset, most[rank])
            states.append(dataset.state_dict())
        merged = as_stored(merge_states(as_stored(states)))
    assert sorted(found) == sorted(2 * EVERY)


def test_mixture_of_hosts_without_torchrun_continues(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    hosts = [replace(environment, hosts=("algo-1", "algo-2"), current_host=f"algo-{number}") for number in (1, 2)]
    first = [mixture(host) for host in hosts]
    found = [*islice(first[0], 5), *first[1]]
    merged = as_stored(merge_states(as_stored([each.state_dict() for each in first])))
    for host in hosts:
        dataset = mixture(host)
        dataset.load_state_dict(merged)
        found += dataset
    assert sorted(found) == sorted([*EVERY, *(f"line {text}" for text in EVERY)])


def test_mixture_with_as_many_readers_continues_its_draws(environment: Environment) -> None:
    whole = list(mixture(environment))
    dataset = mixture(environment)
    before = list(islice(dataset, 57))
    merged = as_stored(merge_states([dataset.state_dict()]))
    again = mixture(environment)
    again.load_state_dict(merged)
    assert before + list(again) == whole


@pytest.mark.parametrize(
    "reading", [Reading(shards=8), Reading(seed=5, block=4, shards=8)], ids=["in order", "shuffled"]
)
def test_step_has_the_same_samples_on_any_number_of_ranks(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, reading: Reading
) -> None:
    """Until the first of the eight shards has ended: 70 objects make six of nine and two of eight."""

    def steps(ranks: int, threads: int, state: Any = None, most: int | None = None) -> tuple[list[list[str]], Any]:
        every: list[list[str]] = []
        states = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            dataset = ChannelDataset("objects", transform=text_of, environment=environment, reading=reading)
            loader = ThreadLoader(dataset, 8 // ranks, threads=threads, collate=list)
            if state is not None:
                loader.load_state_dict(state)
            for step, batch in enumerate(islice(loader, most)):
                every.extend([[]] * (step + 1 - len(every)))
                every[step] = sorted(every[step] + batch)
            states.append(loader.state_dict())
        return every, as_stored(merge_states(states))

    whole, _ = steps(1, 1)
    assert sorted(chain.from_iterable(whole)) == EVERY
    for ranks in (2, 4, 8):
        assert steps(ranks, 1)[0][:8] == whole[:8]
        first, merged = steps(ranks, 1, most=3)
        for others in (1, 2, 4, 8):
            rest, _ = steps(others, 1, merged)
            assert (first + rest)[:8] == whole[:8]
            assert sorted(chain.from_iterable(first + rest)) == EVERY
    whole, _ = steps(1, 2)
    assert steps(4, 2)[0][:6] == whole[:6] == steps(2, 2)[0][:6]
    first, merged = steps(2, 2, most=3)
    assert (first + steps(1, 2, merged)[0])[:6] == whole[:6], "the second thread of each rank was next"


def test_hosts_with_their_own_objects_resume_with_any_number_of_readers(environment: Environment) -> None:
    """Here both hosts have the same objects, as if each had been assigned these."""

    def shards(host: int, count: int) -> list[Shard]:
        return [Shard(index, count, host=(host, 2)) for index in range(count)]

    found: list[str] = []
    merged = None
    for counts, most, late in (((2, 2), 9, 1), ((3, 1), 9, None), ((3, 1), 9, 0), ((1, 2), None, None)):
        states: list[Any] = []
        for host, count in enumerate(counts):
            for shard in shards(host, count):
                if host == late:
                    states.append(merged or {"epoch": 0})
                    continue
                with open_channel("tar", environment=environment, shard=shard, reading=SHUFFLED) as samples:
                    if merged is not None:
                        samples.load_state_dict(merged)
                    found += map(text_of, islice(samples, most))
                    states.append(samples.state_dict())
        merged = as_stored(merge_states(as_stored(states)))
    assert sorted(found) == sorted(2 * EVERY)
    with (
        open_channel("tar", environment=environment, shard=Shard(host=(2, 3)), reading=SHUFFLED) as samples,
        pytest.raises(ChannelError, match="but this reader has"),
    ):
        samples.load_state_dict(merged)


def test_host_that_had_finished_stays_finished_whichever_of_its_readers_begin_again(environment: Environment) -> None:
    found: list[str] = []
    merged = None
    for count, most, late in ((1, (9, None), ()), (2, (9, None), ((1, 1),)), (1, (None, None), ())):
        states: list[Any] = []
        for host, index in [(host, index) for host in range(2) for index in range(count)]:
            if (host, index) in late:
                states.append(merged)
                continue
            shard = Shard(index, count, host=(host, 2))
            with open_channel("tar", environment=environment, shard=shard, reading=SHUFFLED) as samples:
                if merged is not None:
                    samples.load_state_dict(merged)
                found += map(text_of, islice(samples, most[host]))
                states.append(samples.state_dict())
        merged = as_stored(merge_states(as_stored(states)))
    assert sorted(found) == sorted(2 * EVERY)


def test_names_are_public(environment: Environment) -> None:
    dataset = ChannelDataset("tar", transform=text_of, environment=environment)
    next(iter(dataset))
    assert sagemaker_channels.merge_states([dataset.state_dict()]) == sagemaker_channels.gather_state(dataset)
    assert texts(environment, "tar") == sorted(EVERY)
