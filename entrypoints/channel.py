"""`open_channel`: one call from a channel's name to its samples, whichever way the channel arrives.

A pipeline of generators, each stage its own table: the input mode says how bytes arrive (`readers`), the content type where
a record ends (`records`), the share which of them are this process's (`sharding`). Nothing is read ahead and nothing
is kept, so memory stays flat; closing the generator closes the stream it has open.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from io import BytesIO

from entrypoints.environment import Channel, Environment, load_environment
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.readers import Reader, reader_of
from entrypoints.records import Format, format_of, recordio
from entrypoints.sample import ByteStream, Sample
from entrypoints.sharding import EVERYTHING, Place, Share, place_from, share_for


def open_channel(
    name: str,
    epoch: int = 0,
    format: str | None = None,
    *,
    environment: Environment | None = None,
    share: Share | None = None,
) -> Generator[Sample, None, None]:
    """The samples of a channel that belong to this process, each once.

    `epoch` counts from 0; under Pipe each has its own FIFO, and after an epoch the next one is to be asked for.
    `format` is a content type or a short name (`objects`, `tar`, `recordio`, `lines`), for a channel whose content
    type is absent or wrong. `share` replaces this process's part of the samples (`default_share`).
    Raises ChannelError at once where the channel cannot be read as asked; while reading, ChannelError where its data
    is not there, and CorruptError, naming object and offset, where it is damaged.
    """
    environment = environment or load_environment()
    channel = find_channel(environment, name)
    reader = reader_of(channel)
    form = format_of(format if format is not None else channel.content_type)
    if reader.JOINED and not form.BOUNDARIES and channel.record_wrapper != "RecordIO":
        raise ChannelError(
            f"channel {name!r}: whole objects lose their boundaries in a Pipe; set record_wrapper_type: RecordIO, or "
            "input_mode: FastFile, or a content_type that has boundaries (application/x-tar, application/x-recordio, "
            f"text/plain); it is {channel.content_type!r}"
        )
    if share is None:
        share = default_share(channel, place_of(environment))
    return _read(channel, epoch, reader, form, share)


def find_channel(environment: Environment, name: str) -> Channel:
    """The job's channel of that name; ChannelError, with the nearest name, where there is none."""
    if name in environment.channels:
        return environment.channels[name]
    near = difflib.get_close_matches(name, environment.channels, 1)
    raise ChannelError(
        f"this job has no channel {name!r}; it has {', '.join(environment.channels) or 'none'}"
        + (f"; did you mean {near[0]!r}?" if near else "")
    )


def place_of(environment: Environment) -> Place:
    """Where this process stands in the job, by torchrun's variables."""
    return place_from(os.environ, environment.host_rank, len(environment.hosts))


def pipe_place(environment: Environment, place: Place) -> Place | None:
    """The place at which one rank of each host can read a Pipe for all of the host; None for the host's other ranks.

    For work that need not be shared evenly; for training, more than one rank of a host and a Pipe do not go together.
    """
    if place.local_rank > 0:
        return None
    return Place(rank=environment.host_rank, world_size=len(environment.hosts))


def default_share(channel: Channel, place: Place, worker: int = 0, workers: int = 1) -> Share:
    """What one DataLoader worker (of `workers`) of a rank is to read.

    Raises ChannelError where the channel is a FIFO and more than one process of the host would read it.
    """
    if reader_of(channel).JOINED and place.local_world_size * workers > 1:
        raise ChannelError(
            f"channel {channel.name!r}: a Pipe has one reader per host, and here are {place.local_world_size} rank(s) "
            f"x {workers} DataLoader worker(s); use one rank per host and num_workers 0 or 1, or input_mode: FastFile"
        )
    if channel.sharer is not None:
        # Of a channel that some hosts get, only these hosts have a part; torchrun's ranks count all hosts.
        number, sharers = channel.sharer
        ranks = place.local_world_size
        place = replace(place, rank=number * ranks + place.local_rank, world_size=sharers * ranks)
    return share_for(channel.distribution, place, worker, workers)


def _read(channel: Channel, epoch: int, reader: Reader, form: Format, share: Share) -> Generator[Sample, None, None]:
    """The pipeline. Errors of the data get the channel's name in front."""
    streams = reader.open_streams(channel, epoch, EVERYTHING if reader.JOINED else share)
    samples = _samples(channel, streams, form, reader.JOINED and channel.record_wrapper == "RecordIO")
    try:
        with closing(samples):
            if reader.JOINED and share != EVERYTHING:
                yield from share.of(samples)
            else:
                yield from samples
    except CorruptError as error:
        raise CorruptError(f"channel {channel.name!r}: {error}") from error


def _samples(
    channel: Channel, streams: Iterator[tuple[str | None, ByteStream]], form: Format, wrapped: bool
) -> Generator[Sample, None, None]:
    key = None
    try:
        for key, stream in streams:
            with closing(stream):
                if wrapped:
                    # Each record is one object as it lies in the bucket, and has its own format inside.
                    for payload in recordio.payloads(stream, key):
                        yield from form.split(BytesIO(payload), key)
                else:
                    yield from form.split(stream, key)
    except OSError as error:
        place = "" if key is None else f" at or after object {key!r}"
        raise ChannelError(f"channel {channel.name!r} cannot be read{place}: {error}") from error
