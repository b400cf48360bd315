"""Which states are merged and loaded by any number of readers, and which are refused."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.states import merge_states, sealed
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset
from sagemaker_channels.torch_data.worker_loader import WorkerLoader
from shuffled_channels import EVERY, SHUFFLED, as_stored, make_environment, text_of, texts


def test_shards_that_ranks_do_not_divide_are_refused(environment: Environment) -> None:
    with pytest.raises(ChannelError, match=r"shards=8 cannot be divided equally among 3 ranks with 1 readers"):
        open_channel("tar", environment=environment, shard=Shard(0, 3), shards=8)
    with pytest.raises(ValueError, match="shards is 0"):
        open_channel("tar", environment=environment, shards=0)


def state_of(
    environment: Environment, name: str, index: int, count: int, read: int = 3, epoch: int = 0, **how: Any
) -> Any:
    with closing(open_channel(name, epoch, environment=environment, shard=Shard(index, count), **how)) as samples:
        list(islice(samples, read))
        return as_stored(samples.state_dict())


def test_states_that_do_not_belong_together_are_not_merged(environment: Environment) -> None:
    one, other = (state_of(environment, "tar", index, 2) for index in (0, 1))
    refused: list[tuple[list[Any], str]] = [
        ([], "there are no states to merge"),
        ([one], "reader 1 of 2 is missing; give the states of all ranks"),
        ([one, state_of(environment, "tar", 0, 2, 5)], "two of reader 0 have different positions"),
        ([one, sealed({**other, "epoch": 1})], "they are of the epochs 0 and 1"),
        ([one, sealed({**other, "epoch": 2})], "they are of the epochs 0 and 2"),
        ([one, state_of(environment, "lines", 1, 2)], "one has channel 'lines', format 'lines', another has channel"),
        ([one, state_of(environment, "tar", 1, 2, **SHUFFLED)], "one has seed 7"),
        ([one, state_of(environment, "tar", 1, 4)], "one has readers 4, another has readers 2"),
        ([{**one, "version": 3}, other], "no state of ours, of version 6, but of version 3"),
        ([one, sealed({**other, "history": [[None]]})], "they were resumed differently"),
        (
            [one, *(sealed({**each, "listing": {"tar": [1, place]}}) for place, each in enumerate((other, one)))],
            "objects differ",
        ),
        ([one, {**other, "at": {"1": {"at": "x"}}}], "the state is damaged or was edited; .*restart the epoch"),
        ([{"model": 1}], "no state of ours, of version 6, but 'model'"),
        ([{"epoch": 1}], "no state of ours, of version 6, but 'epoch'"),
        ([None], "no state of ours, of version 6, but None"),
    ]
    for states, reason in refused:
        with pytest.raises(ChannelError, match=reason):
            merge_states(states)
    with pytest.raises(TypeError, match="give a list of the states of all ranks"):
        merge_states(one)


def test_merging_merged_states_changes_nothing(environment: Environment) -> None:
    states = [state_of(environment, "tar", index, 3, **SHUFFLED) for index in range(3)]
    merged = merge_states(states)
    assert merge_states([merged, merged]) == merged
    assert merge_states([merged, states[1]]) == merged


def test_all_is_left_of_the_share_of_a_reader_that_has_not_begun(environment: Environment) -> None:
    """Its state is the beginning of the epoch, or the end of the one before."""
    states = [state_of(environment, "tar", index, 3, epoch=1) for index in range(3)]
    unbegun, finished = state_of(environment, "tar", 1, 3, 0, epoch=1), state_of(environment, "tar", 1, 3, 99)
    merged = merge_states([states[0], finished, states[2]])
    assert merged == merge_states([states[0], unbegun, states[2]])
    assert merged["at"]["1"] == {"at": [0, 0]}


def test_epoch_that_was_finished_when_it_was_loaded_stays_finished(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a rank of another number of ranks."""
    merged = merge_states([state_of(environment, "tar", index, 3, 99) for index in range(3)])
    assert not any(merged["at"].values())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = ChannelDataset("tar", environment=environment)
    dataset.load_state_dict(merged)
    assert dataset.epoch == 1
    dataset.set_epoch(0)
    assert list(dataset) == []
    assert dataset.epoch == 1


@pytest.mark.parametrize("is_mixed", [False, True])
def test_rank_that_passes_over_a_finished_epoch_leaves_nothing(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, is_mixed: bool
) -> None:
    """The others have resumed in its middle, after it was divided among another number of ranks."""

    found: list[str] = []

    def read(rank: int, ranks: int, state: Any, most: int | None) -> Any:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(ranks))
        part = ChannelDataset("tar", transform=text_of, environment=environment)
        dataset = MixedDataset([part]) if is_mixed else part
        loader: Any = WorkerLoader(dataset, 1, num_workers=1, collate_fn=list)
        if state is not None:
            loader.load_state_dict(state)
        dataset.set_epoch(0)
        for batch in islice(iter(loader), most):
            found.extend(batch)
        return loader.state_dict()

    merged = merge_states([read(0, 1, None, 20)])
    states = [merged, merged]
    for most in (9, 3):
        states = [read(0, 2, states[0], None), read(1, 2, states[1], most)]
    read(0, 1, merge_states(states), None)
    assert sorted(found) == EVERY


def test_old_state_is_refused(environment: Environment) -> None:
    old = {"version": 2, "epoch": 0, "finished": False, "of": {}, "object": 1, "position": 0}
    with (
        closing(open_channel("tar", environment=environment)) as samples,
        pytest.raises(ChannelError, match=r"no state of ours, of version 6, but of version 2; .*restart the epoch"),
    ):
        samples.load_state_dict(old)


def test_changed_objects_are_refused_by_any_number_of_readers(tmp_path: Path) -> None:
    environment = make_environment(tmp_path)
    merged = merge_states([state_of(environment, "lines", index, 2, 25) for index in range(2)])
    (environment.channels["lines"].path / "3.txt").rename(environment.channels["lines"].path / "33.txt")
    with (
        closing(open_channel("lines", environment=environment, shard=Shard(0, 3))) as samples,
        pytest.raises(ChannelError, match="the data has changed; restart the epoch"),
    ):
        samples.load_state_dict(merged)
        list(samples)


@pytest.mark.parametrize("lines", [5, 15])
@pytest.mark.parametrize("block", [25, 1000])
def test_object_that_is_rewritten_in_a_begun_block_is_named(environment: Environment, block: int, lines: int) -> None:
    """The block is read again to resume in it: with other samples it would have another order."""
    reading: dict[str, Any] = {"seed": 7, "block": block}
    state = state_of(environment, "lines", 0, 1, 14, **reading)
    for number in {text.partition("-")[0] for text in texts(environment, "lines", **reading)[:block]}:
        path = environment.channels["lines"].path / f"{number}.txt"
        before = path.read_bytes()
        path.write_text("new\n" * lines)
        with (
            closing(open_channel("lines", environment=environment, **reading)) as samples,
            pytest.raises(ChannelError, match=r"^channel 'lines': .* when the state was taken: .*; restart the epoch$"),
        ):
            samples.load_state_dict(state)
            next(samples)
        path.write_bytes(before)
