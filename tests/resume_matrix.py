"""A job of any number of ranks and threads or workers that is interrupted and restarted, simulated in this process.

The parts are those that `Checkpoints` uses: each rank's loader has a state, and a restarted rank loads its own, or with another
number of ranks, threads or workers a part of what all have left.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from delivered_channels import recordio_of
from patience import in_threads
from sagemaker_channels import ChannelDataset, MixedDataset, ThreadLoader, WorkerLoader
from sagemaker_channels.checkpointing.checkpoints import load_position
from sagemaker_channels.formats import SHORT_NAMES
from sagemaker_channels.formats.shards import write_shards
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import Sample

RANKS, SIZES, EPOCHS = (1, 2, 3, 4, 8), (0, 2, 4), 2
AUGMENTED = 'augmented; attributes="text,other"'  # each attribute in a record
FORMATS = tuple(AUGMENTED if name == "augmented" else name for name in SHORT_NAMES)
READINGS: tuple[dict[str, Any], ...] = (
    {},
    {"seed": 7, "block": 10},
    {"seed": 7},
    {"seed": 3, "block": 1},
    {"seed": 3, "block": 1000, "block_bytes": 100},
)
NAMES = tuple(f"{number}-{number}" for number in range(33))
KINDS = ("samples", "parts", "mixture")  # of datasets; a mixture has filters and generator functions


def write_objects(folder: Path, form: str) -> None:
    """Write the samples of NAMES in some objects of a format."""
    folder.mkdir(parents=True)
    if form == "objects":
        for name in NAMES:
            (folder / name).write_text(name)
    elif form == AUGMENTED:
        for number in range(0, len(NAMES), 7):
            records = [text.encode() for name in NAMES[number : number + 7] for text in (name, "x")]
            (folder / f"{number:02}").write_bytes(recordio_of(records))
    else:
        example = SHORT_NAMES[form].example
        samples = (example(number, name.encode()) for number, name in enumerate(NAMES))
        write_shards(samples, folder, form, shard_samples=7)


def name_of(sample: Sample) -> str:
    """Return which of NAMES a sample of any format is."""
    found = re.search(r"\b\d+-\d+\b", repr(sample))
    assert found is not None, sample
    return found[0]


def parts_of(sample: Sample) -> Iterator[str]:
    """Yield 0 to 3 parts of a sample."""
    name = name_of(sample)
    yield from (f"{name}.{part}" for part in range(int(name.partition("-")[0]) % 4))


def every(kind: str) -> list[str]:
    """Return what an epoch of a kind of dataset has."""
    return [*NAMES] if kind == "samples" else [part for name in NAMES for part in parts_of({"data": name})]


def dataset_of(kind: str, environment: Environment, **how: Any) -> ChannelDataset | MixedDataset:
    """Return a dataset of channel `train`; a mixture of two parts of it, of which one has every third sample."""
    dataset = ChannelDataset(
        "train", transform=name_of if kind == "samples" else parts_of, environment=environment, **how
    )
    if kind != "mixture":
        return dataset
    others = dataset.filter(lambda sample: int(name_of(sample).partition("-")[0]) % 3)
    return MixedDataset([dataset.filter(lambda sample: int(name_of(sample).partition("-")[0]) % 3 == 0), others])


@dataclass(frozen=True)
class Layout:
    """How a life of the job reads."""

    ranks: int
    kind: str  # threads | workers | dataset
    size: int  # threads or workers per rank

    def loader(self, dataset: ChannelDataset | MixedDataset) -> Any:
        if self.kind == "threads":
            return ThreadLoader(dataset, 3, num_workers=self.size, collate_fn=list)
        if self.kind == "workers":
            return WorkerLoader(dataset, 3, num_workers=self.size, collate_fn=list)
        return dataset


def any_layout(chance: random.Random, *, processes: bool) -> Layout:
    """Return a random layout; one with worker processes only if `processes`."""
    ranks, size = chance.choice(RANKS), chance.choice(SIZES)
    kinds = ["threads", "threads", *(["workers"] if processes else [])] if size else ["dataset", "workers", "threads"]
    kind = chance.choice(kinds)
    return Layout(ranks, kind, size or int(kind == "threads"))


@dataclass
class Job:
    """Lives of one job, each of which continues the one before."""

    form: str
    reading: dict[str, Any]
    chance: random.Random
    patch: pytest.MonkeyPatch
    kind: str
    together: bool = False  # Ranks read at the same time, as they must in a Pipe.
    found: list[tuple[int, str]] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    _states: list[Any] = field(default_factory=list)

    def live(self, environment: Environment, layout: Layout, *, last: bool) -> None:
        """Read with some ranks, to the end in the last life and else up to a random batch of a random epoch."""
        loaders = [self._rank(environment, layout, rank) for rank in range(layout.ranks)]
        [begin] = {loader_dataset(loader).epoch for loader in loaders}
        stop = EPOCHS if last else self.chance.randrange(begin, EPOCHS + 1)
        steps = [self.chance.choice([None, 0, 1, 2, self.chance.randrange(12)]) for _ in loaders]
        if self.together:
            steps = steps[:1] * layout.ranks
        self.story.append(f"{layout} from epoch {begin} to {steps} steps of {stop}")
        states: list[Any] = [None] * layout.ranks

        def read(rank: int) -> None:
            self.found += _read(loaders[rank], begin, stop, steps[rank])
            states[rank] = loaders[rank].state_dict()

        if self.together:
            in_threads(read, layout.ranks)
        else:
            for rank in range(layout.ranks):
                read(rank)
        self._states = json.loads(json.dumps(states))

    def _rank(self, environment: Environment, layout: Layout, rank: int) -> Any:
        self.patch.setenv("RANK", str(rank))
        self.patch.setenv("WORLD_SIZE", str(layout.ranks))
        loader = layout.loader(dataset_of(self.kind, environment, format=self.form, **self.reading))
        if self._states:
            load_position(loader, self._states, rank if len(self._states) == layout.ranks else None)
        return loader


def loader_dataset(loader: Any) -> ChannelDataset:
    dataset: ChannelDataset = getattr(loader, "stream", getattr(loader, "dataset", loader))
    return dataset


def _read(loader: Any, begin: int, stop: int, steps: int | None) -> Iterator[tuple[int, str]]:
    """Yield what a rank reads: whole epochs, and so many steps of the last."""
    dataset = loader_dataset(loader)
    for epoch in range(begin, min(stop + 1, EPOCHS)):
        dataset.set_epoch(epoch)
        batches = iter(loader)
        for batch in islice(batches, steps if epoch == stop else None):
            yield from ((epoch, name) for name in ([batch] if isinstance(batch, str) else batch))
        if hasattr(batches, "close"):
            batches.close()
