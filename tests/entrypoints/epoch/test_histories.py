"""No sample is lost or repeated, whatever numbers of readers continue an epoch; the same number continues in the exact order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from format_channels import job
from histories import interrupted, lives
from resume_matrix import FORMATS, NAMES, READINGS, dataset_of, name_of, write_objects
from sagemaker_channels.epoch import deals, states
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.loader import ThreadLoader

TRIALS = 12


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Environment]:
    made = {}
    for number, form in enumerate(FORMATS):
        root = tmp_path_factory.mktemp(f"form-{number}")
        write_objects(root / "input/data/train", form)
        made[form] = job(root, "application/x-other", "File")
    return made


def opener(environment: Environment, form: str, how: dict[str, Any]) -> Any:
    return lambda shard: open_channel("train", 1, format=form, environment=environment, shard=shard, **how)


@pytest.mark.parametrize("form", FORMATS)
def test_every_sample_is_read_once_by_changing_numbers_of_readers(
    environments: dict[str, Environment], form: str
) -> None:
    for trial in range(TRIALS):
        chance = random.Random(f"{form} {trial}")
        found, story = lives(chance, opener(environments[form], form, chance.choice(READINGS)), name_of)
        assert sorted(found) == sorted(NAMES), story


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_reader_continues_in_the_exact_order(environments: dict[str, Environment], form: str) -> None:
    for trial in range(4):
        chance = random.Random(f"same {form} {trial}")
        opened, shard = opener(environments[form], form, chance.choice(READINGS)), chance.choice([Shard(), Shard(1, 3)])
        with opened(shard) as samples:
            expected = [name_of(sample) for sample in samples]
        assert interrupted(chance, opened, name_of, shard) == expected


@pytest.mark.parametrize(
    "mutation",
    [
        lambda reach: lambda position: None if position is None else position["at"][0],  # begun items are not taken
        lambda reach: lambda position: 0 if position is None else reach(position),  # finished readers have read nothing
        lambda reach: lambda position: reach(position) and reach(position) + 1,  # one item too many is taken
    ],
)
def test_trials_notice_faults(
    environments: dict[str, Environment], monkeypatch: pytest.MonkeyPatch, mutation: Any
) -> None:
    monkeypatch.setattr(deals, "reach", mutation(deals.reach))
    wrong = 0
    for trial in range(40):
        chance = random.Random(trial)
        found, _ = lives(chance, opener(environments["lines"], "lines", chance.choice(READINGS)), name_of)
        wrong += sorted(found) != sorted(NAMES)
    assert wrong


@pytest.mark.parametrize("seed", [None, 7])
def test_hosts_that_have_objects_of_their_own(tmp_path: Path, seed: int | None) -> None:
    """ShardedByS3Key: every host's readers deal the host's own objects, also after their number has changed."""
    hosts, names = 2, [f"{number}-{number}" for number in range(24)]
    made = []
    for host in range(hosts):
        folder = tmp_path / f"{host}/input/data/train"
        folder.mkdir(parents=True)
        for name in names[host::hosts]:
            (folder / name).write_text(name)
        made.append(job(tmp_path / f"{host}", "application/x-other", "File"))
    for trial in range(30):
        chance = random.Random(trial)

        def opened(shard: Shard) -> Samples:
            number, host = divmod(shard.index, hosts)
            own = Shard(number, shard.count // hosts, host=(host, hosts))
            return open_channel("train", environment=made[host], shard=own, seed=seed, block=3)

        found, story = lives(chance, opened, name_of, (2, 4, 6, 8))
        assert sorted(found) == sorted(names), story


def read_two_ranks(loaders: list[ThreadLoader], found: list[list[Any]], steps: int, save: Callable[[], None]) -> bool:
    """Read so many steps of both ranks, and return whether they have read two epochs."""
    while loaders[0].dataset.epoch < 2:
        loops: list[Any] = [iter(loader) for loader in loaders]
        while any(loops):
            for rank, loop in enumerate(loops):
                batch = next(loop, None) if loop else None
                if batch is None:
                    loops[rank] = None
                else:
                    found[rank].append(batch)
            steps -= 1
            if steps % 3 == 0:
                save()
            if steps <= 0:
                return False
    return True


@pytest.mark.parametrize(
    "how",
    [
        {"seed": 5, "block": 7, "shards": 8},
        {"kind": "mixture", "seed": 5, "block": 7},
        {"kind": "parts", "shards": 8},
    ],
    ids=repr,
)
def test_killed_ranks_continue_in_the_order_of_an_undisturbed_run(
    environments: dict[str, Environment], monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """Two ranks save every third step and are killed between two saves. Whole orders are compared, not only sets."""
    here, readers = environments["lines"], 1

    def started(state: Any) -> list[ThreadLoader]:
        made = []
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", "2")
            dataset = dataset_of(environment=here, format="lines", **{"kind": "samples", **how})
            made.append(ThreadLoader(dataset, 3, num_workers=2, readers=readers, collate_fn=list))
            if state is not None:
                made[-1].load_state_dict(state)
        return made

    for trial in range(6):
        chance, readers = random.Random(f"killed {trial}"), 1 + trial % 2
        whole: list[list[Any]] = [[], []]
        assert read_two_ranks(started(None), whole, 1000, lambda: None)
        found: list[list[Any]] = [[], []]
        saved: tuple[Any, list[int]] = (None, [0, 0])
        for _ in range(12):
            for batches, count in zip(found, saved[1], strict=True):
                del batches[count:]
            loaders = started(saved[0])

            def save(loaders: list[ThreadLoader] = loaders, found: list[list[Any]] = found) -> None:
                nonlocal saved
                states_now = [json.loads(json.dumps(loader.state_dict())) for loader in loaders]
                saved = states.merge_states(states_now), [len(batches) for batches in found]

            if read_two_ranks(loaders, found, chance.randrange(1, 16), save):
                break
        else:
            for batches, count in zip(found, saved[1], strict=True):
                del batches[count:]
            assert read_two_ranks(started(saved[0]), found, 1000, lambda: None)
        assert found == whole


def test_state_of_a_million_objects_is_small() -> None:
    numbers = range(1_000_000)
    history = [[{"at": [1000 + reader, 0]} for reader in range(count)] for count in (3, 8, 5)]
    left = list(deals.items(numbers, history))
    assert len(left) == 1_000_000 - sum(count * 1000 + sum(range(count)) for count in (3, 8, 5))
    assert len(repr({"history": history})) < 1000


def test_merged_state_needs_all_readers(environments: dict[str, Environment]) -> None:
    opened = opener(environments["lines"], "lines", {})
    one = opened(Shard(0, 2))
    next(one)
    with pytest.raises(Exception, match=r"reader 1 of 2 is missing; give the states of all ranks"):
        states.merge_states([one.state_dict()])
