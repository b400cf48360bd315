"""A state of a finished epoch yields nothing more, and the next epoch is whole, with every loader."""

from __future__ import annotations

import json
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from format_channels import lines_channel
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.states import is_finished, sealed
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.worker_loader import WorkerLoader
from stateful_loaders import LOADERS, SHUFFLED, dataset_of, given, read, text_of

LINES = [f"{shard}-{number}" for shard in range(7) for number in range(10)]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A channel of 7 objects of 10 lines each."""
    return lines_channel(tmp_path, "files", 7, 10)


def of_files(environment: Environment) -> ChannelDataset:
    return ChannelDataset("files", transform=text_of, environment=environment, **SHUFFLED)


@pytest.mark.parametrize(
    ("name", "mixed"), [*((name, False) for name in LOADERS), ("dataset", True), ("threads", True), ("workers", True)]
)
def test_state_of_a_finished_epoch_yields_nothing_and_the_next_epoch_whole(
    environment: Environment, name: str, mixed: bool
) -> None:
    def make() -> Any:
        parts = [of_files(environment) for _ in range(2 if mixed else 1)]
        return LOADERS[name](MixedDataset(parts) if mixed else parts[0])

    def resumed(epoch: int | None) -> tuple[Any, list[str]]:
        loader = make()
        loader.load_state_dict(pickle.loads(state))
        return loader, read(loader, epoch)

    first = make()
    whole = {epoch: read(first, epoch) for epoch in (3, 2)}
    assert len(whole[2]) == len(whole[3]) == 70 * (1 + mixed)
    assert whole[2] != whole[3]
    state = pickle.dumps(first.state_dict())
    assert resumed(3)[1] == whole[3]
    assert resumed(None)[1] == whole[3]
    loader, nothing = resumed(2)
    assert nothing == []
    assert read(loader, 3) == whole[3]
    assert read(first, 3) == whole[3]  # and so in the process that took it


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "dataset"])
def test_shard_that_ended_before_the_others_stays_finished(environment: Environment, name: str) -> None:
    whole = read(LOADERS[name](of_files(environment)), 1)
    counts = (15, 16, 17, 18)  # batches: of 40 samples in one shard, and 30 in the other
    for count in counts[::3] if "workers" in name else counts:
        first = LOADERS[name](of_files(environment))
        dataset_of(first).set_epoch(1)
        iterator = iter(first)
        before = [text for _ in range(count) for text in next(iterator)]
        state = first.state_dict()
        again = LOADERS[name](of_files(environment))
        again.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert before + given(again) == whole


@pytest.mark.parametrize("name", ["threads", "workers", "persistent workers"])
def test_rank_that_ended_before_the_others_resumes_in_its_epoch(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else it would give the next epoch's samples where the others give what is left of this one."""
    for variable, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(variable, value)
    whole, left, resumed = (LOADERS[name](of_files(environment)) for _ in range(3))
    first, second = read(whole, 0), read(whole, 1)
    assert read(left, 0) == first
    resumed.load_state_dict(json.loads(json.dumps(left.state_dict())))
    assert given(resumed) == []
    assert read(resumed, 1) == second


@pytest.mark.parametrize(("workers", "persistent"), [(1, True), (2, False)])
def test_samples_dropped_at_the_end_do_not_repeat_the_epoch(
    environment: Environment, workers: int, persistent: bool
) -> None:
    """The loader's state is of before the samples that make no whole batch, which its workers then read again."""

    def make() -> Any:
        how: dict[str, Any] = {"batch_size": 8, "collate_fn": list, "drop_last": True, "persistent_workers": persistent}
        return WorkerLoader(of_files(environment), num_workers=workers, **how)

    first = make()
    whole = {epoch: read(first, epoch) for epoch in (3, 4, 2)}
    assert len(whole[2]) == 64
    state = pickle.dumps(first.state_dict())
    for epochs in ([2, 3], [3], [4, 4]):
        resumed = make()
        resumed.load_state_dict(pickle.loads(state))
        assert [read(resumed, epoch) for epoch in epochs] == [[] if epoch == 2 else whole[epoch] for epoch in epochs]
        del resumed


def test_iterations_without_set_epoch_read_one_epoch_each(environment: Environment) -> None:
    first = LOADERS["workers"](of_files(environment))
    whole = read(first, 1)
    second = read(first, None)
    dataset_of(first).set_epoch(1)
    iterator = iter(first)
    before = [text for _ in range(9) for text in next(iterator)]
    resumed = LOADERS["workers"](of_files(environment))
    resumed.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert before + read(resumed, 1) == whole
    assert read(resumed, None) == second
    assert second != whole


@pytest.mark.parametrize("name", ["workers", "persistent workers"])
def test_loop_that_resumes_near_the_end_of_an_epoch_is_followed_by_the_next_one(
    environment: Environment, name: str
) -> None:
    loader = LOADERS[name](of_files(environment))
    whole, second = read(loader, 1), read(loader, None)
    dataset_of(loader).set_epoch(1)
    states, before = [], list[str]()
    for batch in loader:
        before += batch
        states.append((loader.state_dict(), len(before)))
    for state, place in states[-3:]:
        resumed = LOADERS[name](of_files(environment))
        resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert given(resumed) == whole[place:]
        assert dataset_of(resumed).epoch == 2
        assert given(resumed) == second


def test_state_of_finished_samples_yields_nothing(environment: Environment) -> None:
    def opened() -> Any:
        return open_channel("files", environment=environment, shard=Shard(), **SHUFFLED)

    with closing(opened()) as samples:
        for _ in range(70):
            next(samples)
        assert not is_finished(samples.state_dict())  # for all one knows
        assert next(samples, None) is None
        state = json.loads(json.dumps(samples.state_dict()))
        assert is_finished(state)
    with closing(opened()) as samples:
        samples.load_state_dict(state)
        assert samples.state_dict() == state
        assert list(samples) == []
        assert is_finished(samples.state_dict())


@pytest.mark.parametrize(("object_number", "position"), [(8, 0), (7, 3), (10**9, 0)])
def test_state_beyond_the_last_object_is_refused(environment: Environment, object_number: int, position: int) -> None:
    def opened() -> Any:
        return open_channel("files", environment=environment, shard=Shard())

    with closing(opened()) as samples:
        at = [object_number, [position, [9, 0]] if position else 0]
        state = sealed({**samples.state_dict(), "at": {"0": {"at": at}}, "listing": {"0": [object_number, 1]}})
    with closing(opened()) as samples:
        samples.load_state_dict(state)
        with pytest.raises(ChannelError, match="the data has changed; restart the epoch"):
            next(samples)
    with closing(opened()) as samples:
        the_end_was_not_seen = sealed({**state, "at": {"0": {"at": [7, 0]}}, "listing": {}})
        samples.load_state_dict(the_end_was_not_seen)
        assert list(samples) == []
