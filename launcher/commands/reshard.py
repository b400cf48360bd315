"""`launch reshard IN OUT`: a prefix of small objects as shards, by a job of the bundled script or here."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import click

import channel_specs
import launcher
from launcher.commands.effects import PlanningCommand
from launcher.commands.effects.local import Local
from launcher.commands.options import argument, option
from launcher.console import say
from launcher.errors import InputError, RefusedError
from launcher.quantities import bytes_of
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import format_of


def _size(value: str | int) -> int:
    """Return the bytes of `256MB`."""
    if not (size := bytes_of(str(value))):
        raise click.BadParameter(f"expected a size such as 256MB, got {value!r}")
    return size


def _place(value: str) -> str:
    """Return `s3://bucket/folder/` or the whole path of a folder of this machine, with its final slash."""
    if "://" not in value:
        return f"{Path(value).absolute()}/"
    try:
        return str(parse_s3_uri(value)).rstrip("/") + "/"
    except RefusedError as error:
        raise click.BadParameter(str(error)) from None


class Reshard(PlanningCommand):
    """Write the objects of a prefix or folder as shards, by a job or here.

    Write the objects below IN as shards to OUT/shards/, both s3://bucket/prefix or both folders of this machine. A job of `launch
    --example reshard` does it, on any number of hosts, or this machine with --local, and always between folders. Each shard is
    read back and compared by digest. OUT/index.json has name, count, bytes and digest of each; OUT/manifest.json is written last,
    in S3. Run the same command again to continue after an interruption. Set role and image with --set role_arn=ARN and --set
    image=URI.
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
        if ("://" in self.source) != ("://" in self.output):
            remedy = "name two folders or two prefixes, and copy with `aws s3 sync`"
            raise click.UsageError(f"{self.source} and {self.output}: one is in S3, the other here; {remedy}")
        if self.labels and ("://" in self.labels) != ("://" in self.source):
            where = "in S3" if "://" in self.labels else "a folder of this machine"
            raise click.UsageError(f"--labels {self.labels} is {where}, and {self.source} is not; copy the lists")
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
        if "://" not in self.source:
            return self._between_folders(content_type)
        has_own_data = isinstance(self.effect, Local) and any(each.startswith("data=") for each in self.effect.channels)
        values = {
            "channels.data": data,
            "channels.data.s3_uri": self.source,
            "channels.data.content_type": content_type,
            "channels.labels": {"s3_uri": self.labels, "input_mode": "File"} if self.labels else None,
            "hyperparameters.source": None if has_own_data else self.source,  # It would be listed.
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

    def _between_folders(self, content_type: str | None) -> int:
        """Write the shards of a folder in this process, without a job."""
        from sagemaker_channels.job.environment import load_environment
        from sagemaker_channels.tools.reshard_channel import reason, reshard

        if self.effect.chosen_by not in (None, Local.chosen_by) or self.hosts > 1 or self.name or self.sets:
            raise click.UsageError(
                "between folders there is no job; leave out --dry-run, --check, --hosts, --name and --set"
            )
        folders = {"data": self.source, **({"labels": self.labels} if self.labels else {})}
        for folder in folders.values():
            if not Path(folder).is_dir():
                raise InputError(f"{folder}: there is no such folder; correct the path, or write s3://bucket/prefix")
        options = Namespace(output=self.output, format=self.format, shard_bytes=self.shard_size, source=self.source)
        options.sidecars, options.seed = self.sidecars or "", self.shuffle_seed
        with TemporaryDirectory(prefix="launch-") as root:
            config = Path(root, contract.CONFIG_DIR, contract.INPUT_DATA_CONFIG_FILE)
            config.parent.mkdir(parents=True)
            config.write_text(json.dumps({name: {"ContentType": content_type} for name in folders}))
            Path(root, contract.DATA_DIR).mkdir(parents=True)
            for name, folder in folders.items():
                Path(root, contract.DATA_DIR, name).symlink_to(folder)
            environment = load_environment(root, {})
            try:
                with redirect_stdout(sys.stderr) if self.as_json else nullcontext():
                    reshard(options, environment)
            except (ChannelError, ImportError, OSError) as error:
                raise RefusedError(reason(error, self.output)) from None
        if self.as_json:
            self.print_json(json.loads(Path(self.output, "index.json").read_text(encoding="utf-8")))
        return 0
