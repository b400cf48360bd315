"""Channels as PyTorch's iterable datasets, in every input mode; `map` has those with random access.

    loader = DataLoader(ChannelDataset("train", transform=decode), batch_size=32, num_workers=4)
    for epoch in range(5):
        with uneven_ranks(model):
            for batch in loader: ...

A stream's length is unknown and ranks can get unequal parts of it, so DistributedSampler and drop_last do not help, and DDP would
wait forever for the rank that has run out. No sample is dropped or repeated; `uneven_ranks` lets ranks finish at different times.
"""

from __future__ import annotations

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError, expect
from sagemaker_channels.fetching.agreement import compare_by
from sagemaker_channels.fetching.shared_listing import job, join_job
from sagemaker_channels.fetching.silence import warn_once
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.order.samples import Samples
from sagemaker_channels.order.sampling import Reading
from sagemaker_channels.samples.channel import check_how, default_shard, find_channel, known_environment, open_channel
from sagemaker_channels.torch_data import frameworks
from sagemaker_channels.torch_data.agreement import exchange
from sagemaker_channels.torch_data.stream_dataset import StreamDataset, Transform


class ChannelDataset(StreamDataset):
    """A rank's samples of a channel, divided among its DataLoader workers; each once per epoch.

    The rank is that of the torch process group when an iteration begins, or if there is none that of torchrun's variables.

    Args:
        channel: The channel's name.
        format: Like open_channel's.
        transform: A function of a sample, called in the worker that read it; it must pickle if workers are started by spawn.
        reading: Order and cache.
        environment: The job; this container's if not given.

    Raises:
        ChannelError: The job has no such channel. Iterating raises what open_channel raises.
        TypeError: An argument is of the wrong type.
    """

    def __init__(
        self,
        channel: str,
        format: str | None = None,
        transform: Transform | None = None,
        *,
        reading: Reading | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.environment = known_environment(environment)
        self.channel = find_channel(self.environment, channel)
        super().__init__([(channel, self.channel.mode)], self.environment)
        check_how(format, reading)
        expect(transform is None or callable(transform), "transform", transform, "a function of a sample")
        self._format = format
        self.transform = transform
        self._reading = reading
        self._job = job()  # Its workers read the same listing.

    @property
    def restarts_epoch(self) -> bool:
        return self.channel.shuffled

    def _check_is_whole(self, workers: int) -> None:
        """Warn that accelerate divides the samples; raise ChannelError if some would be lost."""
        name, hosts, remedy = (
            repr(self.channel.name),
            len(self.environment.hosts),
            "use a ThreadLoader",
        )
        is_part = self.channel.host_shard is not None or (hosts > 1 and self.channel.distribution == contract.SHARDED)
        if is_part or self.channel.mode == "Pipe":
            raise ChannelError(
                f"channel {name}: accelerate divides what each rank reads among all ranks, but a rank cannot read the whole"
                f" channel; {remedy}"
            )
        if workers > 1 and self.divider == frameworks.DISPATCHER:
            raise ChannelError(
                f"channel {name}: accelerate drops samples of the incomplete batches with which {workers} workers end;"
                f" use num_workers=1, or {remedy}"
            )
        warn_once(
            f"channel {name}: accelerate divides its samples among the ranks after they are read, so one rank reads them for"
            f" all, or each reads all of them; to read only each rank's, {remedy}"
        )

    def samples(self, worker: int = 0, workers: int = 1, epoch: int | None = None) -> Samples:
        join_job(self._job)
        compare_by(exchange)
        placement = self.placement
        if placement != self.own_placement:
            self._check_is_whole(workers)
        shard = default_shard(self.channel, placement, worker, workers)
        return open_channel(
            self.channel.name,
            self.epoch if epoch is None else epoch,
            self._format,
            environment=self.environment,
            shard=shard,
            reading=self._reading,
        )
