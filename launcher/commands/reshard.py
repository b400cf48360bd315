"""`launch reshard IN OUT`: a prefix of small objects as shards, by a job of the bundled script or here."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import click

import launcher
from launcher import bundled
from launcher.commands import options
from launcher.commands.local import check_local, here_option, local_options
from launcher.commands.submit import Submission, carry_out, own_output, submit_options
from launcher.errors import InputError, RefusedError, has_folder
from launcher.parsing.layers import Assignment
from launcher.quantities import bytes_of
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import FORMATS, format_of


def _size(value: str) -> int:
    """Return the bytes of `256MB`."""
    if not (size := bytes_of(value)):
        raise click.BadParameter(f"expected a size such as 256MB, got {value!r}")
    return size


def _place(value: str) -> str:
    """Return `s3://bucket/folder/` or the whole path of a folder of this machine, with its final slash."""
    return str(parse_s3_uri(value)).rstrip("/") + "/" if "://" in value else f"{Path(value).absolute()}/"


@options.command(
    "reshard",
    "reshard s3://mine/train/ s3://mine/shards/ --format tar --shard-size 256MB --dry-run",
    exit_codes=(0, 2, 3, 4, 5),
)
@click.argument("source", type=_place, metavar="IN")
@click.argument("output", type=_place, metavar="OUT")
@options.group(
    "shards",
    click.option(
        "--format",
        type=click.Choice([form.name for form in FORMATS if form.holds and not form.framing]),
        default="tar",
        help="The shards' format.",
    ),
    click.option(
        "--shard-size",
        type=_size,
        metavar="SIZE",
        default="256MB",
        help="A shard ends with the sample that reaches this size.",
    ),
    click.option("--shuffle-seed", type=int, metavar="N", help="Shuffle objects and samples by this number."),
    click.option(
        "--labels", type=_place, metavar="URI", help="A prefix with .lst lists, whose labels are added to the samples."
    ),
    click.option(
        "--sidecars",
        metavar="ENDINGS",
        help="Endings of files that belong to the object of the same name, such as json,txt: one sample.",
    ),
    click.option(
        "--content-type",
        metavar="FORMAT",
        help="What an object of IN holds, such as tar or application/x-recordio; by default one sample.",
    ),
    click.option("--hosts", type=click.IntRange(min=1), metavar="N", default=1, help="Hosts of the job."),
)
@options.name_option
@options.spec_options
@submit_options
@here_option
@local_options
def reshard(
    source: str,
    output: str,
    shards: SimpleNamespace,
    name: str | None,
    reading: options.SpecOptions,
    doing: Submission,
    runner: str | None,
    local: launcher.LocalOptions,
) -> int:
    """Write the objects of a prefix or folder as shards.

    The objects below IN are written as shards to OUT/shards/, both s3://bucket/prefix or both folders of this machine. A job of
    `launch --example reshard` does it, on any number of hosts, or this machine with --local, and always between folders. Each
    shard is read back and compared by digest. OUT/index.json has name, count, bytes and digest of each; OUT/manifest.json is
    written last, in S3. Run the same command again to continue after an interruption. Set role and image with --set
    role_arn=ARN and --set image=URI.
    """
    is_here = "://" not in source
    check_local(is_local=bool(runner) or is_here)
    content_type = _check(source, output, shards)
    if is_here:
        if doing.dry_run or doing.check or shards.hosts > 1 or name or reading.sets:
            raise click.UsageError(
                "between folders there is no job; leave out --dry-run, --check, --hosts, --name and --set"
            )
        return _between_folders(source, output, shards, content_type, as_json=doing.as_json)
    # SageMaker assigns keys to hosts; one host, and one that joins objects, reads S3 itself, which is faster than FastFile.
    if shards.hosts == 1 or shards.sidecars:
        data = {"source": "S3Connector"}
    else:
        data = {"source": "S3", "input_mode": "FastFile", "s3_data_distribution_type": "ShardedByS3Key"}
    has_own_data = any(each.startswith("data=") for each in local.channels)
    file = str(bundled.spec_path("reshard"))
    values = {
        "channels.data": data,
        "channels.data.s3_uri": source,
        "channels.data.content_type": content_type,
        "channels.labels": {"s3_uri": shards.labels, "input_mode": "File"} if shards.labels else None,
        "hyperparameters.source": None if has_own_data else source,  # It would be listed.
        "hyperparameters.output": output,
        "hyperparameters.format": shards.format,
        "hyperparameters.shard-bytes": shards.shard_size,
        "hyperparameters.seed": shards.shuffle_seed,
        "hyperparameters.sidecars": shards.sidecars,
        "resource_config.instance_count": shards.hosts,
    }
    ours = [Assignment(*each, "launch reshard") for each in values.items() if each[1] is not None]
    ours += own_output("reshard", f"{output}job/")
    plan = reading.plan(launcher.load(file, sets=[*ours, *reading.sets]), name)
    if not runner:
        return carry_out(plan, reading, doing)
    here = replace(local, runner=runner, yes=doing.yes, as_json=doing.as_json)
    return launcher.run_local(plan, options=here).exit_code


def _check(source: str, output: str, shards: SimpleNamespace) -> str | None:
    """Return the content type of IN. Raises click.UsageError if arguments contradict each other."""
    if output.startswith(source) or source.startswith(output):
        raise click.UsageError(f"{source} and {output} contain each other; write to a prefix beside IN")
    if ("://" in source) != ("://" in output):
        remedy = "name two folders or two prefixes, and copy with `aws s3 sync`"
        raise click.UsageError(f"{source} and {output}: one is in S3, the other here; {remedy}")
    if shards.labels and ("://" in shards.labels) != ("://" in source):
        where = "in S3" if "://" in shards.labels else "a folder of this machine"
        raise click.UsageError(f"--labels {shards.labels} is {where}, and {source} is not; copy the lists")
    if shards.sidecars and (shards.content_type or shards.format == "recordio"):
        why = "--sidecars joins whole objects, which RecordIO has no names for"
        raise click.UsageError(f"{why}; use another format, no --content-type")
    content_type: str | None = shards.content_type
    if not content_type or "/" in content_type:
        return content_type
    try:
        form = format_of(content_type)
    except ChannelError as error:
        raise click.UsageError(f"--content-type: {error}") from error
    return next(iter(form.content_types), form.name)


def _between_folders(
    source: str, output: str, shards: SimpleNamespace, content_type: str | None, *, as_json: bool
) -> int:
    """Write the shards of a folder in this process, without a job."""
    from sagemaker_channels.epoch.channel import find_channel
    from sagemaker_channels.job.environment import load_environment
    from sagemaker_channels.tools.reshard_channel import reason, reshard

    folders = {"data": source, **({"labels": shards.labels} if shards.labels else {})}
    for folder in folders.values():
        if not has_folder(folder):
            raise InputError(f"{folder}: there is no such folder; correct the path, or write s3://bucket/prefix")
    if Path(output).is_file():
        raise InputError(f"{output.rstrip('/')}: is a file; use another folder")
    wanted = Namespace(output=output, format=shards.format, shard_bytes=shards.shard_size, source=source)
    wanted.sidecars, wanted.seed = shards.sidecars or "", shards.shuffle_seed
    with TemporaryDirectory(prefix="launch-") as root:
        empty = load_environment(root, {})
        found = {name: find_channel(empty, folder) for name, folder in folders.items()}
        channels = {name: replace(each, name=name, content_type=content_type) for name, each in found.items()}
        try:
            with redirect_stdout(sys.stderr) if as_json else nullcontext():
                reshard(wanted, replace(empty, channels=channels))
        except OSError as error:
            where = error.filename or output
            raise RefusedError(f"{where}: {error.strerror}; correct that, or use another path") from None
        except (ChannelError, ImportError) as error:
            raise RefusedError(reason(error, output)) from None
    if as_json:
        options.print_json(json.loads(Path(output, "index.json").read_text(encoding="utf-8")))
    return 0
