"""Channels without a job, and what their readers yield."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources.readers import reader_of

WHOLE = Shard()


def on_disk(path: Path, mode: str = "File", distribution: str = "FullyReplicated") -> Channel:
    return Channel("train", mode, None, distribution, "None", path)


def connector(uri: str, style: str = "iterable", max_objects: int | None = None) -> Channel:
    return Channel("train", "S3Connector", None, "FullyReplicated", "None", Path("/none"), uri, style, max_objects)


def fill(directory: Path, keys: list[str]) -> None:
    """Make a file for each key, which holds the key."""
    for key in keys:
        file = directory / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(key.encode())


def streams_of(channel: Channel, shard: Shard = WHOLE) -> Iterator[tuple[str | None, ByteStream]]:
    """The keys and streams of a shard's objects."""
    reader = reader_of(channel)
    assert reader is not None
    return reader.open_objects(channel, islice(reader.objects(channel, 0), shard.index, None, shard.count))


def read(channel: Channel, shard: Shard = WHOLE) -> list[tuple[str | None, bytes]]:
    """The keys and contents of a shard's objects."""
    found = []
    for key, stream in streams_of(channel, shard):
        found.append((key, stream.read()))
        stream.close()
    return found
