"""Several channels as one iterable dataset."""

from __future__ import annotations

from collections.abc import Mapping

from sagemaker_channels.errors import ChannelError, expect
from sagemaker_channels.samples.channel import default_shard
from sagemaker_channels.samples.mixing import Mixture, known_weights
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.stream_dataset import StreamDataset
from sagemaker_channels.waits import timed_transform


class MixedDataset(StreamDataset):
    """A rank's samples of several channels, drawn by weight; each once per epoch.

    Args:
        parts: The weight of each dataset; samples get their own dataset's transform.
        seed: Seed of the draws.
        stop_at_first: Whether the epoch ends with the first channel that ends; otherwise the others continue.

    Raises:
        TypeError: `parts` is not a mapping of ChannelDatasets.
        ValueError: A weight is not a finite number above 0.
    """

    def __init__(self, parts: Mapping[ChannelDataset, float], *, seed: int = 0, stop_at_first: bool = False) -> None:
        expect(isinstance(parts, Mapping), "parts", parts, "the datasets with their weights: {train: 3.0, extra: 1.0}")
        if not all(isinstance(part, ChannelDataset) for part in parts):
            raise TypeError(f"a mixture needs ChannelDatasets, got {', '.join(type(part).__name__ for part in parts)}")
        self._parts, self._weights = list(parts), known_weights(parts.values())
        sources, first = [(part.channel.name, part.channel.mode) for part in self._parts], self._parts[0]
        super().__init__(sources, first.environment)
        self._seed, self._stop_at_first = seed, stop_at_first

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Mixture:
        epoch = self.epoch if epoch is None else epoch
        pipes = [part.channel.name for part in self._parts if part.channel.mode == "Pipe"]
        if pipes and default_shard(self._parts[0].channel, self.placement, worker, workers).readers > 1:
            raise ChannelError(
                f"channel {pipes[0]!r}: a Pipe in a mixture must have one reader per host, because several would draw at different"
                " times and wait for each other; use one rank per host and num_workers 0 or 1, or input_mode: FastFile"
            )
        return Mixture(
            [part.samples(worker, workers, epoch) for part in self._parts],
            self._weights,
            seed=str(self._seed),
            reader=f"{epoch}/{self.placement.rank}/{self.placement.world_size}/{worker}/{workers}",
            transforms=[timed_transform(part.transform) for part in self._parts],
            stop_at_first=self._stop_at_first,
        )
