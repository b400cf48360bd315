"""Channels as PyTorch's map-style datasets: random access to whole objects, each a sample with its `data`.

An index is a whole number as in a list, negative from the end. DataLoader requests the indices of a batch at once; the objects are
then read in parallel, unless they are files on a disk.

They have neither state nor epoch: torchdata's StatefulDataLoader keeps the sampler's position.
"""

# ruff: noqa: TID253 - its name says that this file imports torch

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from torch.utils.data import Dataset, get_worker_info

from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import find_channel, known_environment
from sagemaker_channels.epoch.placement import placement_of
from sagemaker_channels.epoch.transformed import add_key_note
from sagemaker_channels.errors import ChannelError, expect, in_channel
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.meter import Meter
from sagemaker_channels.sample import KEY, Sample, sample_of
from sagemaker_channels.sources import mounted
from sagemaker_channels.sources.agreement import compare_by
from sagemaker_channels.sources.items import Keys
from sagemaker_channels.sources.listing import keep_in
from sagemaker_channels.sources.readers import reader_of
from sagemaker_channels.torch_data import frameworks
from sagemaker_channels.torch_data.epochs import SharedWork
from sagemaker_channels.torch_data.ranks import exchange
from sagemaker_channels.torch_data.shared_memory import shared
from sagemaker_channels.waits import are_recorded, timed_transform

Transform: TypeAlias = Callable[[Sample], Any]


class ChannelMapDataset(Dataset[Any]):
    """Random access to the objects of a channel, in the order of their keys: `keys` has these by index.

    The dataset lists all objects that this host has. Under FullyReplicated a DistributedSampler divides them among the ranks; under
    ShardedByS3Key it must divide them among the host's ranks (num_replicas=LOCAL_WORLD_SIZE, rank=LOCAL_RANK).

    Args:
        channel: The channel's name, an S3 prefix or a folder.
        transform: A function of a sample.
        region: The region of a channel that is an S3 prefix, if not that of the variables (AWS_REGION).
        endpoint: The URL of its store, if not that of the variables (AWS_ENDPOINT_URL) or AWS.
        environment: The job; this container's if not given.

    Raises:
        ChannelError: The job has no such channel, or it is a Pipe; later: an object cannot be read.
    """

    keys: Sequence[str]
    _meter: Meter
    _used: tuple[int, bool] | None = None  # the meter's process, and whether the loop records its waits elsewhere

    def __init__(
        self,
        channel: str | os.PathLike[str],
        transform: Transform | None = None,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        environment: Environment | None = None,
    ) -> None:
        environment = known_environment(environment)
        self._environment = environment
        self._channel = find_channel(environment, channel, region=region, endpoint=endpoint)
        reader = reader_of(self._channel)
        if reader is None:
            raise ChannelError(
                f"input_mode {self._channel.mode} has no random access",
                channel=self._channel.name,
                remedy="use ChannelDataset, or input_mode: FastFile",
            )
        expect(transform is None or callable(transform), "transform", transform, "a function of a sample")
        self._transform = timed_transform(transform)
        self._channel_work = SharedWork([(self._channel.name, self._channel.mode)], environment)
        compare_by(exchange)
        keep_in(environment.checkpoint_dir, environment.job_name)
        if reader is mounted:
            self._objects: Sequence[Any] = mounted.objects(self._channel)
            self.keys = self._objects
        else:
            self._objects = reader.objects(self._channel, 0)
            self.keys = Keys(reader.key_of(self._channel, item) for item in self._objects)
        len(self.keys)  # lists all of them

    def __len__(self) -> int:
        if self._channel.distribution == contract.SHARDED and len(self._environment.hosts) > 1:
            placement = placement_of(self._environment)
            frameworks.check_sampler(placement.world_size, placement.local_world_size)
        return len(self.keys)

    def __getitem__(self, index: SupportsIndex) -> Any:
        [sample] = self.__getitems__([index])
        return sample

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Any]: ...  # Python does it by __getitem__

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Return the samples of a batch, in the order of its indices; DataLoader calls this."""
        places = [self._place(index) for index in indices]
        if not are_recorded():
            return [*self._read(places)]
        used = (os.getpid(), self._channel_work.is_timed)
        if used != self._used:
            self._used, self._meter = used, self._channel_work.meter()
        self._meter.begin()
        samples = [*self._read(places)]
        self._meter.end(len(samples))
        return samples

    def __getstate__(self) -> dict[str, Any]:
        frameworks.check_sent(self._transform)
        return {name: value for name, value in self.__dict__.items() if name not in ("_meter", "_used")}

    def _read(self, places: Sequence[int]) -> Iterator[Any]:
        # A generator, so that a StopIteration of the transform is an error, and does not end a DataLoader's loop.
        reader: Any = reader_of(self._channel)
        with closing(reader.open_objects(self._channel, [self._objects[place] for place in places])) as streams:
            for place in places:
                try:
                    key, stream = next(streams)
                    with closing(stream):
                        sample = sample_of(stream.read(), key)
                except ChannelError as error:
                    raise in_channel(error, self._channel.name) from error
                except OSError as error:
                    key = self.keys[place]
                    raise ChannelError(f"cannot be read: {error}", channel=self._channel.name, object=key) from error
                yield self._transformed(sample)
                del sample

    def _place(self, index: SupportsIndex) -> int:
        """The number of a sample, from 0. Raises TypeError or IndexError."""
        name, count = type(self).__name__, len(self.keys)
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"the index of a {name} is {index!r}; give a whole number, or select a part of the dataset by"
                " torch.utils.data.Subset(dataset, range(...))"
            ) from None
        if not -count <= number < count:
            raise IndexError(f"index {number} is out of range for a {name} of {count:,} samples")
        return number % count

    def _transformed(self, sample: Sample) -> Any:
        key = sample[KEY]
        try:
            transformed = sample if self._transform is None else self._transform(sample)
        except Exception as error:
            add_key_note(error, key, self._channel.name)
            raise
        return transformed if get_worker_info() is None else shared(transformed)
