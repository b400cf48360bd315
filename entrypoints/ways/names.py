"""The names by which other libraries open the objects of a channel."""

from __future__ import annotations

from entrypoints.readers import mounted, s3
from entrypoints.ways.card import Source


def paths(source: Source) -> list[str]:
    """Return the paths of the channel's files, in the order of our own readers."""
    return [str(source.channel.path / path) for path in mounted.objects(source.channel)]


def urls(source: Source) -> list[str]:
    """Return the URLs of the objects under the channel's prefix."""
    bucket = str(source.channel.s3_uri).removeprefix("s3://").partition("/")[0]
    return [f"s3://{bucket}/{listed.key}" for listed in s3.objects(source.channel)]
