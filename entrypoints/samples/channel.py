"""`open_channel`: one call from a channel's name to its samples, whichever way the channel arrives.

The input mode says how bytes arrive (`readers`), the content type where a record ends (`records`), the shard which of them
are this process's (`sharding`), the order when (`sampling`); `pipeline` puts them together.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from pathlib import Path

from entrypoints.errors import ChannelError, expect, whole_number
from entrypoints.job.environment import Channel, Environment, load_environment
from entrypoints.order.sampling import Order, Reading, Samples
from entrypoints.order.sharding import Placement, Shard, placement_from, shard_for
from entrypoints.readers import mounted, reader_of
from entrypoints.readers.remote_file import is_remote
from entrypoints.records import Format, format_of, objects
from entrypoints.records.text import augmented
from entrypoints.samples.object_cache import ObjectCache
from entrypoints.samples.pipeline import Pipeline


def open_channel(
    name: str,
    epoch: int = 0,
    format: str | None = None,
    *,
    environment: Environment | None = None,
    shard: Shard | None = None,
    reading: Reading | None = None,
) -> Samples:
    """The samples of a channel that belong to this process, each once: an iterator, and a context manager that closes it.

    One that is left early is closed at the end of its `with`, or when nothing refers to it any more.

    `epoch` counts from 0; under Pipe each has its own FIFO, and after an epoch the next one is to be asked for.
    `format` is a content type or a short name (`tar`, `csv`: see `records.SHORT_NAMES`), for a channel whose content type is
    absent or wrong; without it a channel of an augmented manifest gives a sample for each line, all its attributes together.
    `shard` replaces this process's part of the samples (`default_shard`).
    `reading` shuffles, and keeps objects for the next epochs. The iterator's `state_dict()` says where it stands, and
    `load_state_dict` of another one goes on there.
    Raises ChannelError at once where the channel cannot be read as asked, ValueError for an `epoch` that is none, TypeError for
    what is of another kind than it should be; while reading, ChannelError where its data is not there, and CorruptError, naming
    object and offset, where it is damaged.
    """
    epoch = whole_number("epoch", epoch, 0)
    environment = known_environment(environment)
    channel = find_channel(environment, name)
    check_how(format, reading)
    expect(shard is None or isinstance(shard, Shard), "shard", shard, "a Shard, or leave it out")
    reader = reader_of(channel)
    form = _form(channel, format)
    if augmented.is_augmented(form):
        channel = replace(channel, record_wrapper="None")  # it takes the records apart itself: they are of attributes
    if reader.JOINED and not form.boundaries and channel.record_wrapper != "RecordIO":
        if form != objects.FORMAT:
            reason = f"{form} is read from its end, which a Pipe does not let one do; use input_mode: FastFile"
            raise ChannelError(f"channel {name!r}: {reason}")
        raise ChannelError(
            f"channel {name!r}: whole objects lose their boundaries in a Pipe; set record_wrapper_type: RecordIO, or "
            "input_mode: FastFile, or a content_type that has boundaries (application/x-tar, application/x-recordio, "
            f"text/plain); it is {channel.content_type!r}"
        )
    if shard is None:
        shard = default_shard(channel, placement_of(environment))
    reading = reading or Reading()
    pipeline = Pipeline(channel, epoch, reader, form, shard, reading, _cache(channel, reading))
    about = {"channel": name, "format": str(form)}
    return Samples(pipeline.samples, Order(epoch, shard, reading, pipeline.is_assigned, channel.shuffled), about)


def _form(channel: Channel, format: str | None) -> Format:
    """The format asked for, else an augmented manifest's where its attributes are known, else the content type's."""
    names = channel.attribute_names
    if format is None and names and channel.record_wrapper == "RecordIO":
        return augmented.of_attributes(names)
    form = format_of(format if format is not None else channel.content_type)
    return augmented.for_channel(form, names) if augmented.is_augmented(form) else form


def _cache(channel: Channel, reading: Reading) -> ObjectCache | None:
    """Where objects are kept; None where they need not be, since they lie on a disk of this machine already."""
    if reading.cache_dir is None:
        return None
    if channel.mode == "Pipe":
        raise ChannelError(
            f"channel {channel.name!r}: a Pipe brings each epoch anew, so nothing of it can be kept; use no cache_dir, or"
            " input_mode: FastFile"
        )
    is_here = reader_of(channel) is mounted and not is_remote(channel.path)
    return None if is_here else ObjectCache(Path(reading.cache_dir), channel)


def known_environment(environment: Environment | None) -> Environment:
    """What was given as the job's environment, or this process's; TypeError where it is none."""
    if environment is None:
        return load_environment()
    expect(isinstance(environment, Environment), "environment", environment, "what load_environment() gave")
    return environment


def check_how(format: str | None, reading: Reading | None) -> None:
    """TypeError where `format` or `reading` are no such thing, as where a transform stands in the second place."""
    remedy = "a content type or a short name such as 'tar'; a transform is given as transform="
    expect(format is None or isinstance(format, str), "format", format, remedy)
    expect(reading is None or isinstance(reading, Reading), "reading", reading, "a Reading, such as Reading(seed=7)")


def find_channel(environment: Environment, name: str) -> Channel:
    """The job's channel of that name; ChannelError, with the nearest name, where there is none."""
    expect(isinstance(name, str), "channel", name, "a channel's name")
    if name in environment.channels:
        return environment.channels[name]
    near = difflib.get_close_matches(name, environment.channels, 1)
    raise ChannelError(
        f"this job has no channel {name!r}; it has {', '.join(environment.channels) or 'none'}"
        + (f"; did you mean {near[0]!r}?" if near else "")
    )


def placement_of(environment: Environment) -> Placement:
    """Where this process stands in the job, by torchrun's variables."""
    return placement_from(os.environ, environment.host_rank, len(environment.hosts))


def default_shard(channel: Channel, placement: Placement, worker: int = 0, workers: int = 1) -> Shard:
    """What one DataLoader worker (of `workers`) of a rank is to read.

    Of a Pipe, too: where several processes of a host read it, the host's broker deals the samples out (`broker`).
    """
    if channel.host_shard is not None:
        # Of a channel that some hosts get, only these hosts have a part; torchrun's ranks count all hosts.
        index, hosts = channel.host_shard
        ranks = placement.local_world_size
        placement = replace(placement, rank=index * ranks + placement.local_rank, world_size=hosts * ranks)
    return shard_for(channel.distribution, placement, worker, workers)
