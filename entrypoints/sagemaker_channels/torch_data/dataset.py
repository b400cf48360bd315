"""Channels as PyTorch's iterable datasets, in every input mode; `map` has those with random access.

loader = DataLoader(ChannelDataset("train", transform=decode), batch_size=32, num_workers=4)
for epoch in range(5):
for batch in loader: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from sagemaker_channels.epoch.channel import Recipe
from sagemaker_channels.epoch.mixture import MixedSource, known_weights
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.epoch.reading import Reading
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.epoch.transformed import Steps
from sagemaker_channels.errors import ChannelError, expect
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import Sample
from sagemaker_channels.torch_data.stream_dataset import StreamDataset

Transform: TypeAlias = Callable[[Sample], Any]


class ChannelDataset(StreamDataset):
    """A rank's samples of a channel; each once per epoch.

    The rank is that of the torch process group when a loop begins, or if there is none that of torchrun's variables.

    Args:
        channel: The channel's name, an S3 prefix (`s3://bucket/prefix/`) or a folder (`./folder`).
        transform: A function of a sample, or a generator function, which makes any number of samples of one. Workers that are
            started by spawn need one that pickles.
        format: Like open_channel's.
        seed: Seed of the shuffle; None keeps the order of keys.
        block: Samples that are shuffled together.
        block_bytes: Size at which a block ends, too.
        shards: Into how many shards an epoch is divided, if not into one for each reader.
        cache_dir: A folder on a local disk that keeps objects for later epochs.
        skip_damaged: How many damaged or undecodable samples each reader may skip in an epoch.
        ranks: The index of this rank's group and the number of groups, if the ranks of a group (a tensor- or pipeline-parallel one)
            shall read the same samples; otherwise each rank reads its own.
        region: The region of a channel that is an S3 prefix, if not that of the variables (AWS_REGION).
        endpoint: The URL of its store, if not that of the variables (AWS_ENDPOINT_URL) or AWS.
        environment: The job; this container's if not given.

    Raises:
        ChannelError: The job has no such channel. Iterating raises what open_channel raises.
        TypeError: An argument is of the wrong type.
    """

    def __init__(
        self,
        channel: str | os.PathLike[str],
        *,
        transform: Transform | None = None,
        format: str | None = None,
        seed: int | None = None,
        block: int = Reading.block,
        block_bytes: int = Reading.block_bytes,
        shards: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        skip_damaged: int = 0,
        ranks: tuple[int, int] | None = None,
        region: str | None = None,
        endpoint: str | None = None,
        environment: Environment | None = None,
    ) -> None:
        reading = Reading(seed, block, block_bytes, cache_dir, shards, skip_damaged)
        recipe = Recipe.of(channel, format, reading, environment, region=region, endpoint=endpoint)
        self.steps = Steps(transform)
        super().__init__([recipe], ranks)
        self.environment, self.channel = recipe.environment, recipe.channel

    def __repr__(self) -> str:
        return f"ChannelDataset({self.channel.name!r}, format={self.format!r}, seed={self.seed}, epoch={self.epoch})"

    @property
    def transform(self) -> Transform | None:
        """The transform; another one is used from the next loop on."""
        return self.steps.transform

    @transform.setter
    def transform(self, transform: Transform | None) -> None:
        self.steps = Steps(transform, self.steps.filters)

    @property
    def seed(self) -> int | None:
        """Seed of the shuffle."""
        return self.recipes[0].reading.seed

    @property
    def format(self) -> str | None:
        """The format, else the channel's content type."""
        return self.recipes[0].format or self.channel.content_type

    def filter(self, keeps: Callable[[Sample], Any]) -> ChannelDataset:
        """Return a dataset of those samples of which a function returns true; it sees them before the transform."""
        made = self._copy()
        made.steps = Steps(self.transform, (*self.steps.filters, keeps))
        return made

    def _samples(self, epoch: int, shards: list[Shard]) -> Samples:
        return self.recipes[0].samples(epoch, shards[0], self.steps)


class MixedDataset(StreamDataset):
    """A rank's samples of several channels, drawn by weight; each once per epoch.

    Args:
        parts: The datasets. The weights are those of what their filters and generator functions make of the samples.
        weights: The relative frequency of each; of equal ones if not given.
        seed: Seed of the draws.

    Raises:
        TypeError: `parts` are not ChannelDatasets.
        ValueError: The weights are not one finite number above 0 for each, or the parts' `ranks` differ.
        ChannelError: A state was loaded into one of the parts.
    """

    def __init__(
        self,
        parts: Iterator[ChannelDataset] | Sequence[ChannelDataset],
        *,
        weights: Sequence[float] | None = None,
        seed: int = 0,
    ) -> None:
        is_list = isinstance(parts, Iterable) and not isinstance(parts, Mapping | StreamDataset)
        expect(is_list, "parts", parts, "a list of datasets, and their weights= beside it")
        self._parts = list(parts)
        self._weights = known_weights([1.0] * len(self._parts) if weights is None else weights)
        if not self._parts or not all(isinstance(part, ChannelDataset) for part in self._parts):
            kinds = ", ".join(type(part).__name__ for part in self._parts) or "none"
            raise TypeError(f"a mixture needs ChannelDatasets, got {kinds}")
        if len(self._weights) != len(self._parts):
            raise ValueError(f"{len(self._parts)} datasets have the weights {weights}; each needs one")
        if len({part.ranks for part in self._parts}) > 1:
            raise ValueError("the datasets of a mixture have different ranks=; give all the same")
        if any(part._epochs.is_loaded for part in self._parts):
            raise ChannelError(
                "the mixture would not use the state loaded into one of its parts", remedy="load its own"
            )
        super().__init__([part.recipes[0] for part in self._parts], self._parts[0].ranks)
        self._seed = seed

    def __repr__(self) -> str:
        return f"MixedDataset({self._parts}, weights={self._weights}, epoch={self.epoch})"

    def _samples(self, epoch: int, shards: list[Shard]) -> Samples:
        pipes = [recipe.channel.name for recipe in self.recipes if recipe.channel.mode == "Pipe"]
        if pipes and shards[0].readers > 1:
            raise ChannelError(
                "a Pipe in a mixture must have one reader per host, because several would draw at different"
                " times and wait for each other",
                channel=pipes[0],
                remedy="use one rank per host and num_workers 0 or 1, or input_mode: FastFile",
            )
        # If hosts have objects of their own in one of the channels, the readers of all are numbered by hosts.
        readers = [recipe.indexes(shard) for recipe, shard in zip(self.recipes, shards, strict=True)]
        number = next((number for number, shard in enumerate(shards) if shard.host), 0)
        if len({(len(indexes), count) for indexes, count in readers}) > 1:
            raise ChannelError(
                "the channels of a mixture must be divided among the same hosts, and into as many shards",
                remedy="give all the same shards=, and the same instance groups",
            )
        about = {
            "mixture": [recipe.about(shard) for recipe, shard in zip(self.recipes, shards, strict=True)],
            "weights": self._weights,
            "seed": self._seed,
        }
        sources = [
            recipe.source(epoch, shard, part.steps)
            for recipe, shard, part in zip(self.recipes, shards, self._parts, strict=True)
        ]
        return Samples(MixedSource(sources, self._weights, self._seed), about, *readers[number])
