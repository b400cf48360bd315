"""Write the samples of channel `data` as shards to S3, verified and restartable (samples/resharding.py).

    python -m entrypoints.reshard --output s3://bucket/folder --format tar --shard-bytes 256000000 [--seed N]

`launch reshard` runs it on any number of hosts. A channel `labels` with `.lst` lists adds their labels to the samples;
`--sidecars json,txt` joins a/1.json and a/1.txt to a/1.jpg. The options can be hyperparameters.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

from entrypoints.errors import ChannelError, ConfigError
from entrypoints.fetching.pages import Listed
from entrypoints.job.environment import Channel, Environment, load_environment
from entrypoints.order.samples import Samples
from entrypoints.order.sampling import Order, Reading
from entrypoints.order.sharding import Placement
from entrypoints.readers import mounted, reader_of, s3, s3_client
from entrypoints.readers.sidecars import FORMAT, Sidecars
from entrypoints.records import format_of
from entrypoints.samples.channel import default_shard, find_channel, open_channel, placement_of
from entrypoints.samples.fitting import FORMATS, LABELLED, NAMED
from entrypoints.samples.lst import Line, parse_lst
from entrypoints.samples.pipeline import Pipeline
from entrypoints.samples.resharding import Target, finish, write_host

_BLOCK_BYTES = 32 << 20  # that are shuffled together


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script. If something cannot be read or written, it ends with one line and exit code 1."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Write a channel's samples as shards to S3.")
    parser.add_argument("--output", required=True, help="s3://bucket/folder")
    parser.add_argument("--format", choices=FORMATS, default="tar")
    parser.add_argument("--shard-bytes", type=int, default=256_000_000)
    parser.add_argument("--source", help="what the channel reads; a run with another one does not continue this one")
    parser.add_argument("--sidecars", default="", help="endings, such as json,txt")
    parser.add_argument("--seed", type=int, help="shuffle by this number")
    options = parser.parse_args(arguments)
    try:
        s3_client.require()
        reshard(options, load_environment())
    except (ChannelError, ConfigError, ImportError, OSError) as error:
        sys.exit(f"reshard: {reason(error, options.output)}")


def reason(error: Exception, output: str) -> str:
    """Return the message of an error, in which the epoch is that of the shards."""
    return str(error).replace("restart the epoch", f"remove everything below {output}")


def reshard(options: argparse.Namespace, environment: Environment) -> None:
    """Write the shards of channel `data`.

    Args:
        options: Those of the script; a folder as `output` needs no S3 client.
        environment: The job.

    Raises:
        ChannelError: Something cannot be read or written.
    """
    channel = find_channel(environment, "data")
    lines, digests = _labels(environment.channels.get("labels"))
    read = format_of(channel.content_type).name
    endings = frozenset(filter(None, re.split(r"[\s,.]+", options.sidecars)))
    labelled = lines is not None or endings or read in LABELLED.values()
    format = LABELLED.get(options.format, options.format) if labelled else options.format
    placement = placement_of(environment)
    settings = {
        "source": options.source,
        "format": format,
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
    target = Target(uri, format, options.shard_bytes, settings, host, hosts, read in NAMED, listed)
    reading = Reading(seed=options.seed, block_bytes=_BLOCK_BYTES)
    samples = _joined(channel, endings, placement, reading) if endings else None
    write_host(samples or open_channel("data", environment=environment, reading=reading), target, lines, _say)
    index: dict[str, Any] = finish(target, _say) or {}
    total = {name: value for name, value in index.items() if name != "shards"}
    environment.model_dir.mkdir(parents=True, exist_ok=True)
    (environment.model_dir / "reshard.json").write_text(json.dumps(total) + "\n", encoding="utf-8")


def _listed(channel: Channel, source: str) -> Sequence[Listed]:
    """Return all objects of the prefix or folder that the channel reads, those of other hosts too."""
    if source.startswith("s3://"):
        return s3.objects(replace(channel, s3_uri=source))
    found = [(path, (channel.path / path).stat()) for path in mounted.objects(channel)]
    return [Listed(path, state.st_size, state.st_mtime_ns) for path, state in found]


def _labels(channel: Channel | None) -> tuple[dict[str, Line] | None, dict[str, str]]:
    """Return the lines of all lists, and the lists' digests. Raises ChannelError if two lists have the same image."""
    if channel is None:
        return None, {}
    lines: dict[str, Line] = {}
    digests = {}
    for name in mounted.objects(channel):
        if name.endswith(".lst"):
            data = (channel.path / name).read_bytes()
            found, problems = parse_lst(data, name)
            if problems:
                raise ChannelError(problems[0])
            if twice := lines.keys() & found.keys():
                raise ChannelError(f"{name}: {min(twice)!r} is in another list, too; remove one of its lines")
            lines |= found
            digests[f"labels {name}"] = sha256(data).hexdigest()[:16]
    return lines, digests


def _joined(channel: Channel, endings: frozenset[str], placement: Placement, reading: Reading) -> Samples:
    """Return this host's samples of objects and their sidecars."""
    reader = reader_of(channel)
    if reader is None or (
        reader is not s3 and placement.world_size > 1
    ):  # SageMaker could assign them to different hosts.
        raise ChannelError(f"channel 'data': {channel.mode} cannot join sidecars; use source: S3Connector")
    shard = default_shard(channel, placement)
    pipeline = Pipeline(channel, 0, Sidecars(endings, reader), FORMAT, shard, reading, None)
    about = {"channel": channel.name, "format": str(FORMAT)}
    return Samples(pipeline.samples, Order(0, shard, reading, assigned=False, unrepeatable=False), about)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("reshard: stopped; start it again to continue"))
    main()
