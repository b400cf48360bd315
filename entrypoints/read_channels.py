"""Read the channels of any job and report what was read.

    python entrypoints/read_channels.py [--num-workers N] [--epochs N] [--batch-size N] [--channels a,b]

The options can be hyperparameters; other hyperparameters are ignored. For each channel and epoch it prints a line of text and one
of JSON: count, bytes, seconds, rate, and a digest that is the same in every input mode (samples/digest.py). All results are written
to `output/data/read_channels-<host>-rank<k>.json`, and their total to the model directory. Each rank reports its own shard: counts,
bytes and digests (modulo 2^256) of the ranks add up to those of the channel.

Only DataLoader workers (`--num-workers` above 0) need torch.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from sagemaker_channels import ChannelError, Environment, load_environment, open_channel
from sagemaker_channels.epoch.channel import find_channel
from sagemaker_channels.epoch.placement import placement_of
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.sample import Sample
from sagemaker_channels.samples.digest import Tally


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script. If a channel cannot be read, it ends with one line and exit code 1."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Read a job's channels and report what was read.")
    parser.add_argument("--num-workers", "--num_workers", type=int, default=0)
    parser.add_argument(
        "--batch-size", "--batch_size", type=int, default=64, help="samples that a worker sends together"
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--channels", help="names, separated by commas; default: all")
    options, _ = parser.parse_known_args(arguments)
    try:
        run(options, load_environment())
    except (ChannelError, ConfigError, ImportError) as error:
        sys.exit(f"read_channels: {error}")


def run(options: argparse.Namespace, environment: Environment) -> None:
    """Read the channels, print each result, and write all of them."""
    # `a,b`, or `["a", "b"]` from a list in the hyperparameters.
    names = re.findall(r"[\w.-]+", options.channels) if options.channels else list(environment.channels)
    results = []
    for epoch in range(options.epochs):
        for name in names:
            results.append(result := read(name, epoch, options, environment))
            print(for_people(result), json.dumps(result), sep="\n", flush=True)
    file_name = f"read_channels-{environment.current_host}-rank{placement_of(environment).rank}.json"
    total = {"samples": sum(result["count"] for result in results), "bytes": sum(result["bytes"] for result in results)}
    for directory, content in ((environment.output_data_dir, results), (environment.model_dir, total)):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / file_name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read(name: str, epoch: int, options: argparse.Namespace, environment: Environment) -> dict[str, Any]:
    """Read this rank's shard of a channel, and measure it; the time includes that of the digest."""
    channel, placement, tally = find_channel(environment, name), placement_of(environment), Tally()
    begin = time.perf_counter()
    for batch in batches(name, epoch, options, environment):
        for sample in batch:
            tally.add(sample)
    seconds = time.perf_counter() - begin
    about = {"channel": name, "epoch": epoch, "mode": channel.mode, "host": environment.current_host}
    ranks = {"rank": placement.rank, "world_size": placement.world_size}
    speed = {"seconds": round(seconds, 6), "bytes_per_second": round(tally.bytes / seconds) if seconds else 0}
    return {**about, **ranks, "count": tally.count, "bytes": tally.bytes, **speed, "digest": tally.hex}


def batches(name: str, epoch: int, options: argparse.Namespace, environment: Environment) -> Iterable[Iterable[Sample]]:
    """Return the samples, read by DataLoader workers if requested."""
    if options.num_workers == 0:
        return [open_channel(name, epoch, environment=environment)]
    try:
        from torch.utils.data import DataLoader
    except ModuleNotFoundError as error:
        raise ImportError("DataLoader workers need torch: pip install torch, or set num-workers to 0") from error
    from sagemaker_channels import ChannelDataset

    dataset = ChannelDataset(name, environment=environment)
    dataset.set_epoch(epoch)
    # `list` leaves the samples as they are; torch's default needs tensors of one shape.
    return DataLoader(dataset, options.batch_size, num_workers=options.num_workers, collate_fn=list)


def for_people(result: dict[str, Any]) -> str:
    """Return a result as a line of text."""
    shard = "" if result["world_size"] == 1 else f" (shard of rank {result['rank']} of {result['world_size']})"
    return (
        f"{result['channel']} by {result['mode']}, epoch {result['epoch']}: {result['count']:,} samples, "
        f"{result['bytes'] / 1e6:,.1f} MB in {result['seconds']:.2f} s, {result['bytes_per_second'] / 1e6:,.1f} MB/s, "
        f"digest {result['digest'][:16]}{shard}"
    )


if __name__ == "__main__":
    main()
