"""`open_channel`: one call from a channel's name to its samples, in any input mode.

The input mode selects the reader (`readers`), the content type the format (`records`), the shard this process's part
(`sharding`), the Reading the order (`sampling`); `pipeline` puts them together.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import replace

from sagemaker_channels.errors import ChannelError, expect, whole_number
from sagemaker_channels.fetching.shared_listing import keep_in
from sagemaker_channels.job.environment import Channel, Environment, load_environment
from sagemaker_channels.order.samples import Samples
from sagemaker_channels.order.sampling import Order, Reading
from sagemaker_channels.order.sharding import Placement, Shard, placement_from, shard_for
from sagemaker_channels.readers import mounted, reader_of
from sagemaker_channels.readers.remote_file import is_remote
from sagemaker_channels.records import Format, format_of, objects
from sagemaker_channels.records.damage import Damage
from sagemaker_channels.records.text import augmented
from sagemaker_channels.samples import warm_pool
from sagemaker_channels.samples.object_cache import ObjectCache
from sagemaker_channels.samples.pipeline import Pipeline
from sagemaker_channels.samples.turns import Turns, fixed_shards


def open_channel(
    name: str,
    epoch: int = 0,
    format: str | None = None,
    *,
    environment: Environment | None = None,
    shard: Shard | None = None,
    reading: Reading | None = None,
) -> Samples:
    """Return this process's samples of a channel, each once.

    Args:
        name: The channel.
        epoch: From 0. Under Pipe each epoch has its own FIFO and can be read once.
        format: A content type or short name (`tar`, `csv`: see `records.SHORT_NAMES`), if the channel's content type is absent or
            wrong. Without it, each line of an augmented manifest is a sample with all its attributes.
        environment: The job; this container's if not given.
        shard: Which samples, in place of this process's own (`default_shard`).
        reading: Order and cache; no shuffle and no cache if not given.

    Returns:
        An iterator and context manager. Its `state_dict()` is its position, from which `load_state_dict()` of another one resumes.
        An iterator that is left early is closed at the end of its `with`, or when Python finalizes it.

    Raises:
        ChannelError: The channel cannot be read as requested; while reading, its data is missing.
        CorruptError: While reading: the data is damaged. The message names object and offset.
        ValueError: `epoch` is not a whole number from 0 on.
        TypeError: An argument is of the wrong type.
    """
    epoch = whole_number("epoch", epoch, 0)
    environment = known_environment(environment)
    channel = find_channel(environment, name)
    keep_in(environment.checkpoint_dir, environment.job_name)
    check_how(format, reading)
    expect(shard is None or isinstance(shard, Shard), "shard", shard, "a Shard, or leave it out")
    reader = reader_of(channel)
    form = _form(channel, format)
    if augmented.is_augmented(form):
        channel = replace(channel, record_wrapper="None")  # It splits the records itself: each is one attribute.
    if reader is None and not form.boundaries and channel.record_wrapper != "RecordIO":
        if form != objects.FORMAT:
            reason = f"{form} is read from its end, which is impossible in a Pipe; use input_mode: FastFile"
            raise ChannelError(f"channel {name!r}: {reason}")
        raise ChannelError(
            f"channel {name!r}: whole objects lose their boundaries in a Pipe; set record_wrapper_type: RecordIO, or "
            "input_mode: FastFile, or a content_type that has boundaries (application/x-tar, application/x-recordio, "
            f"text/plain); {f'it is {channel.content_type!r}' if channel.content_type else 'the channel has none'}"
        )
    if shard is None:
        shard = default_shard(channel, placement_of(environment))
    reading = reading or Reading()
    cache = _cache(channel, reading, environment)
    damage = Damage(reading.skip_damaged, name, epoch, environment.root, environment.current_host)

    def samples_of(shard: Shard) -> Samples:
        pipeline = Pipeline(channel, epoch, reader, form, shard, reading, cache, damage)
        order = Order(epoch, shard, reading, pipeline.is_assigned, channel.shuffled, by_samples=reader is None)
        samples = Samples(pipeline.samples, order, {"channel": name, "format": str(form)})
        samples.counted = pipeline.count
        return samples

    if reading.shards is None:
        samples = samples_of(shard)
    else:
        parts = [samples_of(each) for each in fixed_shards(channel, shard, reading.shards)]
        samples = Turns(parts)
        samples.counted = lambda: sum(part.counted() for part in parts)
    samples.damage = damage
    return samples


def _form(channel: Channel, format: str | None) -> Format:
    """Return the requested format, else an augmented manifest's if its attributes are known, else the content type's."""
    names = channel.attribute_names
    if format is None and names and channel.record_wrapper == "RecordIO":
        return augmented.of_attributes(names)
    form = format_of(format if format is not None else channel.content_type)
    return augmented.for_channel(form, names) if augmented.is_augmented(form) else form


def _cache(channel: Channel, reading: Reading, environment: Environment) -> ObjectCache | None:
    """Return the cache, or None if there is none or the objects are on a disk of this machine already."""
    if reading.cache_dir is None:
        return None
    if channel.mode == "Pipe":
        raise ChannelError(
            f"channel {channel.name!r}: cache_dir cannot keep objects of a Pipe, which sends each epoch as one stream; remove"
            " cache_dir, or use input_mode: FastFile"
        )
    is_here = reader_of(channel) is mounted and not is_remote(channel.path)
    if is_here:
        return None
    if reading.cache_dir != warm_pool.NAME:
        return ObjectCache(reading.cache_dir, channel)
    pool = warm_pool.warm_pool(channel, environment)
    return ObjectCache(pool.folder, channel, pool) if pool else None


def known_environment(environment: Environment | None) -> Environment:
    """Return the argument `environment`, or this container's if it is None. Raises TypeError if it is something else."""
    if environment is None:
        return load_environment()
    expect(isinstance(environment, Environment), "environment", environment, "what load_environment() returned")
    return environment


def check_how(format: str | None, reading: Reading | None) -> None:
    """Raise TypeError for arguments of the wrong type, such as a transform in the second position."""
    remedy = "a content type or a short name such as 'tar'; pass a transform as transform="
    expect(format is None or isinstance(format, str), "format", format, remedy)
    expect(reading is None or isinstance(reading, Reading), "reading", reading, "a Reading, such as Reading(seed=7)")


def find_channel(environment: Environment, name: str) -> Channel:
    """Return the job's channel of that name. Raises ChannelError, with the nearest name, if there is none."""
    expect(isinstance(name, str), "channel", name, "a channel's name")
    if name in environment.channels:
        return environment.channels[name]
    near = difflib.get_close_matches(name, environment.channels, 1)
    raise ChannelError(
        f"this job has no channel {name!r}; it has {', '.join(environment.channels) or 'none'}"
        + (f"; did you mean {near[0]!r}?" if near else "")
    )


def placement_of(environment: Environment) -> Placement:
    """Return this process's placement in the job, from torchrun's variables."""
    return placement_from(os.environ, environment.host_rank, len(environment.hosts))


def default_shard(channel: Channel, placement: Placement, worker: int = 0, workers: int = 1) -> Shard:
    """Return the shard of one of a rank's DataLoader workers; for a Pipe too, whose samples the host's broker assigns."""
    if channel.host_shard is not None:
        # torchrun's ranks count all hosts, but only these hosts receive the channel.
        index, hosts = channel.host_shard
        ranks = placement.local_world_size
        placement = replace(placement, rank=index * ranks + placement.local_rank, world_size=hosts * ranks)
    return shard_for(channel.distribution, placement, worker, workers)
