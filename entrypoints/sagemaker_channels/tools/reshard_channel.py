"""The samples of channel `data`, with labels and sidecars if asked for, as shards: `launch reshard` and `entrypoints/reshard.py`.

`resharding.py` writes the shards; here is what they are made of.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from sagemaker_channels.epoch.channel import find_channel, open_channel
from sagemaker_channels.epoch.order import ObjectSource
from sagemaker_channels.epoch.placement import Placement, default_shard, placement_of
from sagemaker_channels.epoch.reading import Reading
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.errors import RESTART, ChannelError
from sagemaker_channels.formats import format_of, labelled
from sagemaker_channels.formats.damage import Damage
from sagemaker_channels.job.environment import Channel, Environment
from sagemaker_channels.samples.lst import read_lists
from sagemaker_channels.sources import mounted, s3
from sagemaker_channels.sources.listing import Listed
from sagemaker_channels.sources.readers import reader_of
from sagemaker_channels.tools.resharding import Target, finish, write_host
from sagemaker_channels.tools.sidecars import FORMAT, Sidecars

_BLOCK_BYTES = 32 << 20  # that are shuffled together


def reason(error: Exception, output: str) -> str:
    """Return the message of an error, in which the epoch is that of the shards."""
    if isinstance(error, ChannelError) and error.remedy == RESTART:
        return f"{error.problem}; remove everything below {output}"
    return str(error)


def reshard(options: argparse.Namespace, environment: Environment) -> None:
    """Write the shards of channel `data`; a folder as `output` needs no S3 client. Raises ChannelError."""
    channel = find_channel(environment, "data")
    labels = environment.channels.get("labels")
    lines = None if labels is None else read_lists(labels.path)
    lists = [] if labels is None else sorted(labels.path.rglob("*.lst"))
    digests = {f"labels {file.name}": sha256(file.read_bytes()).hexdigest()[:16] for file in lists}
    read, written = format_of(channel.content_type), format_of(options.format)
    endings = frozenset(filter(None, re.split(r"[\s,.]+", options.sidecars)))
    if lines is not None or endings or (read.holds and read.framing):  # more fields than a record without names has
        written = labelled(written)
    placement = placement_of(environment)
    settings = {
        "source": options.source,
        "format": written.name,
        "shard-size": options.shard_bytes,
        "shuffle-seed": options.seed,
        "hosts": placement.world_size,
        "content-type": channel.content_type,
        "labels": lines is not None,
        "sidecars": ",".join(sorted(endings)),
        **digests,
    }
    uri = options.output.rstrip("/") + "/"
    host, hosts = placement.rank, placement.world_size
    listed = partial(_listed, channel, options.source) if options.source else None
    target = Target(uri, written.name, options.shard_bytes, settings, host, hosts, read.named, listed)
    how = {"seed": options.seed, "block_bytes": _BLOCK_BYTES}
    samples = _joined(channel, endings, placement, Reading.of(how)) if endings else None
    write_host(samples or open_channel("data", environment=environment, **how), target, lines)
    index: dict[str, Any] = finish(target) or {}
    total = {name: value for name, value in index.items() if name != "shards"}
    environment.model_dir.mkdir(parents=True, exist_ok=True)
    (environment.model_dir / "reshard.json").write_text(json.dumps(total) + "\n", encoding="utf-8")


def _listed(channel: Channel, source: str) -> Sequence[Listed]:
    """Return all objects of the prefix or folder that the channel reads, those of other hosts too."""
    if source.startswith("s3://"):
        return s3.objects(replace(channel, s3_uri=source))
    found = [(path, (channel.path / path).stat()) for path in mounted.objects(channel)]
    return [Listed(path, state.st_size, state.st_mtime_ns) for path, state in found]


def _joined(channel: Channel, endings: frozenset[str], placement: Placement, reading: Reading) -> Samples:
    """Return this host's samples of objects and their sidecars."""
    reader = reader_of(channel)
    # SageMaker could assign an object and its sidecar to different hosts.
    if reader is None or (reader is not s3 and placement.world_size > 1):
        raise ChannelError(f"channel 'data': {channel.mode} cannot join sidecars", remedy="use source: S3Connector")
    shard = default_shard(channel, placement)
    damage = Damage(0, channel.name, 0, Path())
    source = ObjectSource(Sidecars(endings, reader), None, {}, channel, 0, FORMAT, reading, damage, None)
    about = {"channel": channel.name, "format": str(FORMAT), "seed": reading.seed}
    return Samples(source, about, [shard.index], shard.count)
