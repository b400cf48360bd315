"""Write the samples of channel `data` as shards to S3, verified and restartable (tools.reshard_channel.py of the library).

    python entrypoints/reshard.py --output s3://bucket/folder --format tar --shard-bytes 256000000 [--seed N]

`launch reshard` runs it on any number of hosts. A channel `labels` with `.lst` lists adds their labels to the samples;
`--sidecars json,txt` joins a/1.json and a/1.txt to a/1.jpg. The options can be hyperparameters.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from sagemaker_channels.errors import ChannelError, ConfigError
from sagemaker_channels.formats import FORMATS
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.sources import connector_client
from sagemaker_channels.tools.reshard_channel import reason, reshard


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script. If something cannot be read or written, it ends with one line and exit code 1."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Write a channel's samples as shards to S3.")
    parser.add_argument("--output", required=True, help="s3://bucket/folder")
    parser.add_argument("--format", choices=[form.name for form in FORMATS if form.holds], default="tar")
    parser.add_argument("--shard-bytes", type=int, default=256_000_000)
    parser.add_argument("--source", help="what the channel reads; a run with another one does not continue this one")
    parser.add_argument("--sidecars", default="", help="endings, such as json,txt")
    parser.add_argument("--seed", type=int, help="shuffle by this number")
    options = parser.parse_args(arguments)
    try:
        connector_client.require()
        reshard(options, load_environment())
    except (ChannelError, ConfigError, ImportError, OSError) as error:
        sys.exit(f"reshard: {reason(error, options.output)}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("reshard: stopped; start it again to continue"))
    main()
