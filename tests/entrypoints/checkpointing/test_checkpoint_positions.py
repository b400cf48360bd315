"""The data position of a checkpoint loads into any loader, with any number of threads and workers, in the epoch it was saved in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from sagemaker_channels import ChannelDataset, Checkpoints, ThreadLoader
from sagemaker_channels.checkpointing.checkpoints import load_position
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from shuffled_channels import CHANNELS, EVERY, SHUFFLED, make_environment, text_of
from stateful_loaders import given, stateful

EPOCHS = 2


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("ml"))


def loader_of(dataset: ChannelDataset, kind: str, size: int) -> Any:
    if kind == "threads":
        return ThreadLoader(dataset, 3, num_workers=size, collate_fn=list)
    return stateful(size)(dataset) if kind == "stateful" else dataset


class Script:
    """What the README's training script does, until it is killed after some steps. Each checkpoint has the samples read so far."""

    def __init__(self, place: Path, environment: Environment, name: str, reading: dict[str, Any]) -> None:
        self.place, self.how, self.name = place, {"environment": environment, **reading}, name
        self.found: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        return {"found": list(self.found)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.found = state["found"]

    def run(self, kind: str, size: int, every: int, steps: int | None) -> None:
        dataset = ChannelDataset(self.name, transform=text_of, **self.how)
        loader = loader_of(dataset, kind, size)
        self.found = []
        with Checkpoints(self.place, keep=1) as checkpoints:
            step = checkpoints.load(loader=loader, journal=self) or 0
            last = None if steps is None else step + steps
            for epoch in range(dataset.epoch, EPOCHS):
                dataset.set_epoch(epoch)
                for batch in loader:
                    self.found += [f"{epoch} {text}" for text in ([batch] if isinstance(batch, str) else batch)]
                    step += 1
                    if step % every == 0:
                        checkpoints.save(step, loader=loader, journal=self)
                    if step == last:
                        return


@pytest.mark.parametrize("seed", range(4))
def test_script_killed_anywhere_trains_on_each_sample_once(tmp_path: Path, environment: Environment, seed: int) -> None:
    chance = random.Random(seed)
    name, reading = chance.choice(sorted(CHANNELS)), chance.choice([{}, SHUFFLED, {"seed": 3, "block": 1}])
    script = Script(tmp_path, environment, name, reading)
    story = [f"{name} {reading}"]
    for life in range(4):
        kind = chance.choice(["threads", "threads", "stateful", "dataset"])
        size = chance.choice([1, 2, 3]) if kind == "threads" else chance.choice([0, 0, 2])
        steps = None if life == 3 else chance.randrange(60)
        every = chance.choice([9, 25])
        story.append(f"{kind} of {size}, a checkpoint each {every} steps, {steps} steps")
        script.run(kind, size, every, steps)
    assert sorted(script.found) == sorted(f"{epoch} {text}" for epoch in range(EPOCHS) for text in EVERY), story


def test_position_in_map_style_dataset_is_of_as_many_ranks(tmp_path: Path) -> None:
    def made() -> Any:
        return StatefulDataLoader(EVERY, 3, num_workers=0, collate_fn=list)

    loader, again = made(), made()
    batches = iter(loader)
    first = [next(batches), next(batches)]
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, loader=loader)
    assert Checkpoints(tmp_path).load(loader=again) == 1
    assert first + list(again) == list(made())
    for position in (loader.state_dict(), {"position": 1}):
        with pytest.raises(ChannelError, match=r"cannot be merged: this is no state of ours.* load without loader="):
            load_position(made(), [position, position], None)


@pytest.mark.parametrize("kind", ["threads", "stateful", "dataset"])
def test_position_of_an_epoch_that_has_not_begun_loads_into_every_loader(
    tmp_path: Path, environment: Environment, kind: str
) -> None:
    dataset = ChannelDataset("tar", transform=text_of, environment=environment)
    dataset.set_epoch(2)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, loader=dataset)
    dataset = ChannelDataset("tar", transform=text_of, environment=environment)
    loader = loader_of(dataset, kind, int(kind == "threads"))
    assert Checkpoints(tmp_path).load(loader=loader) == 1
    assert dataset.epoch == 2
    assert sorted(given(loader)) == EVERY
