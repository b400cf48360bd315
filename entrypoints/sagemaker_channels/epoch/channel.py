"""`open_channel`: one call from a channel's name to its samples, in any input mode.

The input mode selects the reader of objects (`sources`), the content type the format (`formats`), the shard this process's part
(`placement`), the Reading the order.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sagemaker_channels.epoch.order import ObjectSource, Source, StreamSource
from sagemaker_channels.epoch.placement import Shard, default_shard, placement_of
from sagemaker_channels.epoch.reading import Reading
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.epoch.states import State
from sagemaker_channels.epoch.transformed import NO_STEPS, Steps
from sagemaker_channels.errors import ChannelError, check_path, expect, whole_number
from sagemaker_channels.formats import Format, augmented, format_of, objects
from sagemaker_channels.formats.damage import Damage
from sagemaker_channels.job.environment import S3_CONNECTOR, Channel, Environment, load_environment
from sagemaker_channels.sources import mounted
from sagemaker_channels.sources.listing import keep_in
from sagemaker_channels.sources.object_cache import ObjectCache, open_cache
from sagemaker_channels.sources.readers import reader_of
from sagemaker_channels.sources.remote_file import is_remote


def open_channel(
    channel: str | os.PathLike[str],
    epoch: int = 0,
    *,
    format: str | None = None,
    environment: Environment | None = None,
    shard: Shard | None = None,
    region: str | None = None,
    endpoint: str | None = None,
    **how: Any,
) -> Samples:
    """Return this process's samples of a channel, each once.

    Args:
        channel: The channel's name, an S3 prefix (`s3://bucket/prefix/`) or a folder (`./folder`).
        epoch: From 0. Under Pipe each epoch has its own FIFO and can be read once.
        format: A content type or short name (`tar`, `csv`: see `formats.SHORT_NAMES`), if the channel's content type is absent or
            wrong. Without it, each line of an augmented manifest is a sample with all its attributes.
        environment: The job; this container's if not given.
        shard: Which samples, in place of this process's own (`default_shard`).
        region: The region of a channel that is an S3 prefix, if not that of the variables (AWS_REGION).
        endpoint: The URL of its store, if not that of the variables (AWS_ENDPOINT_URL) or AWS.
        how: Order and cache: the attributes of `Reading`.

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
    expect(shard is None or isinstance(shard, Shard), "shard", shard, "a Shard, or leave it out")
    recipe = Recipe.of(channel, format, Reading.of(how), environment, region=region, endpoint=endpoint)
    if shard is None:
        shard = default_shard(recipe.channel, placement_of(recipe.environment))
    return recipe.samples(epoch, shard)


@dataclass(frozen=True)
class Recipe:
    environment: Environment
    channel: Channel
    format: str | None
    reading: Reading
    # By epoch, the objects that were last counted, which its loop need not list again.
    listed: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        channel: str | os.PathLike[str],
        format: str | None,
        reading: Reading,
        environment: Environment | None,
        **store: str | None,
    ) -> Recipe:
        """Return the recipe of arguments, `store` being find_channel's. Raises TypeError or ChannelError for wrong ones."""
        remedy = "a content type or a short name such as 'tar'; pass a transform as transform="
        expect(format is None or isinstance(format, str), "format", format, remedy)
        if format is not None:
            format_of(format)
        environment = known_environment(environment)
        return cls(environment, find_channel(environment, channel, is_dataset=True, **store), format, reading)

    def source(self, epoch: int, shard: Shard, steps: Steps) -> Source:
        channel, reading, environment = self.channel, self.reading, self.environment
        keep_in(environment.checkpoint_dir, environment.job_name)
        reader, form = reader_of(channel), self.form
        if augmented.is_augmented(form):
            channel = replace(channel, record_wrapper="None")  # It splits the records itself: each is one attribute.
        damage = Damage(reading.skip_damaged, channel.name, epoch, environment.root, environment.current_host)
        of = channel, epoch, form, reading, damage, shard.host
        source: Source
        if reader is None:
            self.check_stream(channel, form)
            if steps.change_number and shard.readers > 1:
                what = "a filter" if steps.filters else "a transform that makes several samples of one"
                raise ChannelError(
                    f"{what}, in a Pipe with several readers on a host, could let one wait for another forever",
                    channel=channel.name,
                    remedy="use one rank and a ThreadLoader, or input_mode: FastFile",
                )
            if self.reading.cache_dir is not None:
                raise ChannelError(
                    "cache_dir cannot keep objects of a Pipe, which sends each epoch as one stream",
                    channel=channel.name,
                    remedy="remove cache_dir, or use input_mode: FastFile",
                )
            source = StreamSource(*of)
            source.readers = shard.readers
        else:
            source = ObjectSource(reader, self._cache(), self.listed, *of)
        source.steps = steps
        return source

    def samples(self, epoch: int, shard: Shard, steps: Steps = NO_STEPS) -> Samples:
        """Return the samples of one reader in an epoch, before its transform unless that is a generator function."""
        return Samples(self.source(epoch, shard, steps), self.about(shard), *self.indexes(shard))

    def indexes(self, shard: Shard) -> tuple[list[int], int]:
        """Return which readers of how many one process is.

        Of a fixed number of shards, consecutive ones belong to the readers of a rank: these take turns by batches, so a batch of
        all ranks has the same shards on any number of ranks, as long as each has as many readers.
        """
        indexes, count, shards = [shard.index], shard.count, self.reading.shards
        if shards is not None:
            where, ranks = f"channel {self.channel.name!r}: shards={shards}", count // shard.workers
            if self.channel.mode == "Pipe":
                raise ChannelError(
                    f"{where} is impossible in a Pipe", remedy="leave shards out, or use input_mode: FastFile"
                )
            if shards % count:
                raise ChannelError(
                    f"{where} cannot be divided equally among {ranks} ranks with {shard.workers} readers",
                    remedy="use numbers whose product divides it",
                )
            worker, rank = divmod(shard.index, ranks)
            indexes, count = [*range(rank * shard.workers + worker, shards, count)], shards
        host, hosts = shard.host or (0, 1)
        return [index * hosts + host for index in indexes], count * hosts

    def about(self, shard: Shard) -> State:
        reading = self.reading
        about: State = {"channel": self.channel.identity, "s3_uri": self.channel.s3_uri, "format": str(self.form)}
        about["input"] = "Pipe" if self.channel.mode == "Pipe" else "objects"  # A Pipe's positions count samples.
        if shard.host is not None:
            about["hosts"] = shard.host[1]
        if reading.seed is not None:
            about |= {"seed": reading.seed, "block": reading.block, "block_bytes": reading.block_bytes}
        if self.channel.shuffled:
            about["restart"] = True
        return about

    @property
    def form(self) -> Format:
        """The requested format, else an augmented manifest's if its attributes are known, else the content type's."""
        names = self.channel.attribute_names
        if self.format is None and names and self.channel.record_wrapper == "RecordIO":
            return augmented.of_attributes(names)
        form = format_of(self.format if self.format is not None else self.channel.content_type)
        return augmented.for_channel(form, names) if augmented.is_augmented(form) else form

    @staticmethod
    def check_stream(channel: Channel, form: Format) -> None:
        if form.boundaries or channel.record_wrapper == "RecordIO":
            return
        if form != objects.FORMAT:
            reason = f"{form} is read from its end, which is impossible in a Pipe; use input_mode: FastFile"
            raise ChannelError(reason, channel=channel.name)
        raise ChannelError(
            "whole objects lose their boundaries in a Pipe",
            channel=channel.name,
            remedy="set record_wrapper_type: RecordIO, or input_mode: FastFile, or a content_type that has boundaries"
            " (application/x-tar, application/x-recordio, text/plain);"
            f" {f'it is {channel.content_type!r}' if channel.content_type else 'the channel has none'}",
        )

    def _cache(self) -> ObjectCache | None:
        """Return the cache, or None if there is none or the objects are on a disk of this machine already."""
        channel, folder = self.channel, self.reading.cache_dir
        if folder is None or (reader_of(channel) is mounted and not is_remote(channel.path)):
            return None
        return open_cache(folder, channel)


def known_environment(environment: Environment | None) -> Environment:
    """Return the argument `environment`, or this container's if it is None. Raises TypeError if it is something else."""
    if environment is None:
        return load_environment()
    expect(isinstance(environment, Environment), "environment", environment, "what load_environment() returned")
    return environment


_named = Counter[tuple[str, bool]]()  # the prefixes and folders, by datasets or not


def _times_named(environment: Environment, name: str, is_dataset: bool) -> int:
    """Return how often datasets had named it, which all ranks have in common; below 0 for what only some may call."""
    _named[name, is_dataset] += 1
    times = _named[name, is_dataset]
    return 0 if environment.job_name else times - 1 if is_dataset else -times  # a job's data stay as they are


def find_channel(
    environment: Environment, name: str | os.PathLike[str], *, is_dataset: bool = True, **store: str | None
) -> Channel:
    """Return the job's channel of that name, or a channel of a prefix (`s3://bucket/prefix/`) or of a folder (`./folder`).

    `store` has `region` and `endpoint` of a prefix. Raises ChannelError, with the nearest name, if there is none, and
    TypeError for an argument of the wrong type.
    """
    expect(isinstance(name, str | os.PathLike), "channel", name, "a channel's name, an S3 URI or a folder")
    if not isinstance(name, str):
        path = os.fspath(name)
        name = path if "/" in path else f"./{path}"  # Path("./folder") is Path("folder").
    is_prefix = name.startswith("s3://") and name not in environment.channels
    for argument, value in store.items():
        remedy = (
            "a string, for an S3 URI as the channel" if is_prefix else f"it with an S3 URI only, and not with {name!r}"
        )
        expect(value is None or (is_prefix and isinstance(value, str)), argument, value, remedy)
    if is_prefix:
        prefix = Channel(name, S3_CONNECTOR, None, "FullyReplicated", "None", Path(), s3_uri=name, style="iterable")
        return replace(prefix, named=_times_named(environment, name, is_dataset), **store)  # type: ignore[arg-type]
    if name in environment.channels:
        return environment.channels[name]
    check_path("channel", name)
    if "/" in name:
        folder = Path(name).expanduser().absolute()
        if not mounted.has_folder(folder, name):
            remedy = "name the folder of this file" if folder.exists() else "correct the path"
            raise ChannelError(f"there is no folder {folder}", channel=name, remedy=remedy)
        named = _times_named(environment, str(folder), is_dataset)
        return Channel(name, "File", None, "FullyReplicated", "None", folder, named=named)
    near = difflib.get_close_matches(name, environment.channels, 1)
    raise ChannelError(
        f"this job has no channel {name!r}; it has {', '.join(environment.channels) or 'none'}",
        remedy=f"did you mean {near[0]!r}?" if near else f"a folder is ./{name}",
    )
