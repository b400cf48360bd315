"""`launch reshard IN OUT`: a prefix of small objects as shards, by a job of the bundled script or here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

import channel_specs
import launcher
from entrypoints.errors import ChannelError
from entrypoints.records import format_of
from launcher.commands.effects import PlanningCommand
from launcher.commands.effects.local import Local
from launcher.commands.options import argument, option
from launcher.console import say
from launcher.errors import RefusedError
from launcher.s3.uri import parse_s3_uri

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def _size(value: str | int) -> int:
    """Return the bytes of `256MB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?b)?", str(value).strip().lower())
    size = int(float(found[1]) * _UNITS[found[2] or ""]) if found else 0
    if size < 1:
        raise click.BadParameter(f"expected a size such as 256MB, got {value!r}")
    return size


def _place(value: str) -> str:
    """Return `s3://bucket/folder/`, with its final slash."""
    try:
        return str(parse_s3_uri(value)).rstrip("/") + "/"
    except RefusedError as error:
        raise click.BadParameter(str(error)) from None


class Reshard(PlanningCommand):
    """Write the objects of a prefix as shards, by a job or here.

    Write the objects below IN as shards to OUT/shards/, both s3://bucket/prefix. A job of `launch --example reshard` does it, on
    any number of hosts, or this machine with --local. Each shard is read back and compared by digest. OUT/index.json has name,
    count, bytes and digest of each; OUT/manifest.json is written last. Run the same command again to continue after an
    interruption. Set role and image with --set role_arn=ARN and --set image=URI.
    """

    example = "reshard s3://mine/train/ s3://mine/shards/ --format tar --shard-size 256MB --dry-run"

    source: str = argument(type=_place, metavar="IN")
    output: str = argument(type=_place, metavar="OUT")
    format: str = option(
        type=click.Choice(("tar", "recordio", "tfrecord", "zip", "parquet")),
        default="tar",
        help="The shards' format; tar by default.",
    )
    shard_size: int = option(
        type=_size,
        metavar="SIZE",
        default=256 * 10**6,
        help="A shard ends with the sample that reaches this size; 256MB by default.",
    )
    shuffle_seed: int | None = option(type=int, metavar="N", help="Shuffle objects and samples by this number.")
    labels: str | None = option(
        type=_place, metavar="URI", help="A prefix with .lst lists, whose labels are added to the samples."
    )
    sidecars: str | None = option(
        metavar="ENDINGS",
        help="Endings of files that belong to the object of the same name, such as json,txt: one sample.",
    )
    content_type: str | None = option(
        metavar="FORMAT",
        help="What an object of IN holds, such as tar or application/x-recordio; by default one sample.",
    )
    hosts: int = option(type=click.IntRange(min=1), metavar="N", default=1, help="Hosts of the job; 1 by default.")
    name: str | None = option(help="The job's full name.")

    def run(self) -> int:
        """Fill in the bundled spec, and carry out the chosen effect."""
        if self.output.startswith(self.source) or self.source.startswith(self.output):
            raise click.UsageError(f"{self.source} and {self.output} contain each other; write to a prefix beside IN")
        if self.sidecars and (self.content_type or self.format == "recordio"):
            why = "--sidecars joins whole objects, which RecordIO has no names for"
            raise click.UsageError(f"{why}; use another format, no --content-type")
        # SageMaker assigns keys to hosts; one host, and one that joins objects, reads S3 itself, which is faster than FastFile.
        if self.hosts == 1 or self.sidecars:
            data = {"source": "S3Connector"}
        else:
            data = {"source": "S3", "input_mode": "FastFile", "s3_data_distribution_type": "ShardedByS3Key"}
        content_type = self.content_type
        if content_type and "/" not in content_type:
            try:
                form = format_of(content_type)
            except ChannelError as error:
                raise click.UsageError(f"--content-type: {error}") from error
            content_type = next(iter(form.content_types), form.name)
        values = {
            "channels.data": data,
            "channels.data.s3_uri": self.source,
            "channels.data.content_type": content_type,
            "channels.labels": {"s3_uri": self.labels, "input_mode": "File"} if self.labels else None,
            "hyperparameters.source": self.source,
            "hyperparameters.output": self.output,
            "hyperparameters.format": self.format,
            "hyperparameters.shard-bytes": self.shard_size,
            "hyperparameters.seed": self.shuffle_seed,
            "hyperparameters.sidecars": self.sidecars,
            "output_data_config.s3_output_path": f"{self.output}job/",
            "resource_config.instance_count": self.hosts,
        }
        ours = [f"{path}={json.dumps(value)}" for path, value in values.items() if value is not None]
        plan = self.plan(launcher.load(str(channel_specs.path("reshard")), sets=[*ours, *self.sets]), self.name)
        code = self.carry_out(plan)
        place = self.output.removeprefix("s3://")
        written = Path(".launch", plan.request["TrainingJobName"], "s3", place)
        if isinstance(self.effect, Local) and self.effect.data and (written / "progress").exists():
            copied = self.effect.data / "s3" / place
            say(f"To read the shards, or to continue: mkdir -p {copied} && cp -r {written}/. {copied}/")
        return code
