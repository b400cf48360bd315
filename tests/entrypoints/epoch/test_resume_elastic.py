"""States merge, and any number of ranks, workers and threads resumes from them: each sample once per epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import pytest
from torch.utils.data import DataLoader

import sagemaker_channels
from sagemaker_channels.epoch.states import is_finished, merge_states
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.ranks import gather_state
from sagemaker_channels.torch_data.worker_loader import WorkerLoader
from shuffled_channels import EVERY, SHUFFLED, as_stored, mixture, text_of, texts


def loaders(environment: Environment, reading: dict[str, Any], kind: str, size: int) -> Any:
    """A loader of this process's rank with so many threads or workers, and what loads a merged state."""
    dataset = ChannelDataset("tar", transform=text_of, environment=environment, **reading)
    if kind == "threads":
        loader = ThreadLoader(dataset, 3, readers=size, collate_fn=list)
        return loader, loader.load_state_dict
    if kind == "workers":
        workers = WorkerLoader(dataset, 3, num_workers=size, collate_fn=list)
        return workers, workers.load_state_dict
    return dataset, dataset.load_state_dict


PLANS: list[list[tuple[str, int, int]]] = [  # kind of loader, ranks, and threads or workers
    [("threads", 2, 2), ("threads", 1, 3), ("workers", 3, 0)],
    [("workers", 1, 2), ("threads", 4, 1), ("dataset", 2, 1)],
    [("dataset", 3, 1), ("workers", 2, 2), ("threads", 1, 4)],
    [("threads", 8, 2), ("workers", 1, 0), ("threads", 2, 2)],
]


@pytest.mark.parametrize("reading", [{}, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("plan", PLANS)
def test_loaders_of_any_kind_and_number_continue_each_other(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    plan: list[tuple[str, int, int]],
    reading: dict[str, Any],
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
            states.append(loader.state_dict())
        merged = as_stored(merge_states(states))
        if is_finished(merged):
            break  # loaded again, it would begin the next epoch
    assert sorted(found) == EVERY
    assert merged is not None and is_finished(merged)


@pytest.mark.parametrize("reading", [{}, SHUFFLED], ids=["in order", "shuffled"])
def test_as_many_ranks_as_before_continue_in_the_same_order(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, reading: dict[str, Any]
) -> None:
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


@pytest.mark.parametrize("kind", ["threads", "threads over a dataset", "plain", "workers"])
def test_epoch_after_a_merged_state_is_whole(environment: Environment, kind: str) -> None:
    first, _ = loaders(environment, SHUFFLED, "threads", 2)
    first.dataset.set_epoch(2)
    before = [text for batch in islice(first, 6) for text in batch]
    merged = as_stored(gather_state(first))
    dataset = ChannelDataset("tar", transform=text_of, environment=environment, **SHUFFLED)
    loader: Any
    if "threads" in kind:
        loader = ThreadLoader(dataset, 4, num_workers=3, collate_fn=list)
    else:
        loader = (DataLoader if kind == "plain" else WorkerLoader)(dataset, 4, num_workers=3, collate_fn=list)
    (dataset if kind in ("plain", "threads over a dataset") else loader).load_state_dict(merged)
    assert dataset.epoch == 2
    rest = [text for batch in loader for text in batch]
    assert sorted(before + rest) == EVERY
    again = [text for batch in loader for text in batch]
    assert sorted(again) == EVERY, "the next epoch"
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
        part = ChannelDataset("tar", transform=text_of, environment=environment, **SHUFFLED)
        dataset = MixedDataset([part]) if is_mixed else part
        loader: Any = WorkerLoader(dataset, 5, num_workers=1, collate_fn=list)
        assert len(list(loader)) == (8, 6)[rank]
        if most:
            dataset.set_epoch(1)
            found += chain.from_iterable(islice(loader, most))
        states.append(loader.state_dict())
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    part = ChannelDataset("tar", transform=text_of, environment=environment, **SHUFFLED)
    dataset = MixedDataset([part]) if is_mixed else part
    dataset.load_state_dict(as_stored(merge_states(states)))
    assert dataset.epoch == 1
    assert sorted([*found, *dataset]) == EVERY


def test_mixtures_of_any_number_continue_each_other(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    merged = None
    for step, (ranks, threads) in enumerate([(2, 2), (3, 1), (1, 4), (4, 1), (2, 2)]):
        states = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            loader = ThreadLoader(mixture(environment), 3, readers=threads, collate_fn=list)
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
    reading: dict[str, Any] = {"shards": 12}
    found: list[str] = []
    merged = None
    for ranks, most in ((2, [None, 5]), (3, [None] * 3)):
        states = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            parts = [ChannelDataset(n, transform=text_of, environment=environment, **reading) for n in ("tar", "lines")]
            dataset = MixedDataset(parts)
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


@pytest.mark.parametrize("reading", [{"shards": 8}, {"seed": 5, "block": 4, "shards": 8}], ids=["in order", "shuffled"])
def test_step_has_the_same_samples_on_any_number_of_ranks(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, reading: dict[str, Any]
) -> None:
    """Until the first of the eight shards has ended: 70 objects make six of nine and two of eight."""

    def steps(ranks: int, threads: int, state: Any = None, most: int | None = None) -> tuple[list[list[str]], Any]:
        every: list[list[str]] = []
        states = []
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(ranks))
            dataset = ChannelDataset("objects", transform=text_of, environment=environment, **reading)
            loader = ThreadLoader(dataset, 8 // ranks, readers=threads, collate_fn=list)
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
    assert (first + steps(2, 2, merged)[0])[:6] == whole[:6], "the second reader of each rank was next"


def test_names_are_public(environment: Environment) -> None:
    dataset = ChannelDataset("tar", transform=text_of, environment=environment)
    next(iter(dataset))
    assert sagemaker_channels.merge_states([dataset.state_dict()]) == sagemaker_channels.gather_state(dataset)
    assert texts(environment, "tar") == sorted(EVERY)
