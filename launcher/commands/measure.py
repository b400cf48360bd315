"""`launch measure`: the ways to read a prefix or a channel, measured by a job of the bundled script or here."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

import launcher
from launcher import bundled
from launcher.commands import options
from launcher.commands.local import check_local, here_option, local_options
from launcher.commands.submit import Submission, carry_out, own_output, submit_options
from launcher.console import print_line, say, shown_path
from launcher.errors import InputError, did_you_mean
from launcher.parsing.layers import Assignment, Sets
from launcher.parsing.team_files import values_below
from launcher.rules.channels.content_types import MIME_TYPES
from launcher.s3.uri import S3Location, parse_s3_uri
from launcher.spec.channels import KINDS
from launcher.spec.channels.base import BaseChannel
from launcher.survey.observed import read_results
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.formats import SHORT_NAMES, format_of
from sagemaker_channels.tools.results import FILE, Results, summary, table
from sagemaker_channels.tools.ways import WAYS, Way, step_seconds, ways_of

_POSITIVE = click.IntRange(min=1)
_DROPPED = "training_job_name checkpoint_config metric_definitions container_entrypoint container_arguments"


@options.command(
    "measure", "measure s3://mine/train/ --ways fast-file,connector-iterable --dry-run", exit_codes=(0, 2, 3, 4, 5)
)
@click.argument("target", type=options.SpecOrUri(), metavar="SPEC_OR_DATA")
@click.argument("chosen", nargs=-1, metavar="[CHANNEL]...")
@options.group(
    "loop",
    click.option(
        "--ways",
        metavar="A,B",
        help="The ways to measure; by default all that can read the data.",
    ),
    click.option(
        "--format",
        metavar="FORMAT",
        help="What an object holds, such as tar; by default what the channel's content_type says, else one sample.",
    ),
    click.option("--rounds", type=_POSITIVE, metavar="N", default=3, help="Measured runs of each way."),
    click.option("--batch-size", type=_POSITIVE, metavar="N", default=4, help="Samples in a batch."),
    click.option(
        "--num-workers", type=click.IntRange(min=0), metavar="N", default=4, help="Worker processes of the loader."
    ),
    click.option(
        "--step",
        metavar="STEP",
        help="A training step: module:function of a batch, or a time such as 20ms; by default nothing.",
    ),
)
@options.name_option
@options.spec_options
@submit_options
@here_option
@local_options
def measure(
    target: str,
    chosen: tuple[str, ...],
    loop: SimpleNamespace,
    name: str | None,
    reading: options.SpecOptions,
    doing: Submission,
    runner: str | None,
    local: launcher.LocalOptions,
) -> int:
    """Measure each way to read a prefix or a channel.

    This shows how fast each way reads SPEC_OR_DATA in a training loop: s3://bucket/prefix, or CHANNEL of a job's spec, whose
    image, role, instance type and code are then used. A job of `launch --example measure` does it, or this machine with --local;
    a folder, such as ./images, is always measured here. All ways must yield the same samples, by digest. Each round starts a
    fresh process per way. A measure.json of an earlier measurement is shown again.
    """
    if options.is_folder(target) and (doing.dry_run or doing.check):
        raise click.UsageError(f"{target} is measured on this machine; leave out --dry-run and --check")
    is_here = bool(runner) or options.is_folder(target)
    check_local(is_local=is_here)
    if target.endswith(".json"):
        results = read_results(Path(target))
        if doing.as_json:
            _print_json(results)
        else:
            print_line("\n".join(table(results)))
        return 0
    if is_here and local.channels and "://" in target:
        raise click.UsageError(f"--channel: {target} has no channels; measure the folder: launch measure DIR")
    plan = reading.plan(_spec(target, chosen, loop, reading.sets), name)
    if not is_here:
        code = carry_out(plan, reading, doing)
        request = plan.request
        if not doing.dry_run and not doing.check:
            place = f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/output/output.tar.gz"
            say(f"results {FILE} in {place}, when the job has ended")
        return code
    here = replace(
        local,
        runner=runner or "process",
        channels=_channels_here(target, plan, local.channels, reading.sets),
        yes=doing.yes,
        as_json=doing.as_json,
    )
    # With --json, the run's own result is not printed beside the measured figures.
    with redirect_stdout(io.StringIO()) if doing.as_json else nullcontext():
        code = launcher.run_local(plan, options=here).exit_code
    file = Path(".launch", plan.request["TrainingJobName"], "algo-1/ml/output/data", FILE)
    if file.exists():
        if doing.as_json:
            _print_json(read_results(file))
        say(f"results {shown_path(file)}")
    return code


def _is_data(target: str) -> bool:
    return "://" in target or options.is_folder(target)


def _spec(target: str, chosen: Sequence[str], loop: SimpleNamespace, sets: Sets) -> launcher.JobSpec:
    if loop.step is not None:
        with _refused():
            step_seconds(loop.step)
    own = list(sets)
    file = str(bundled.spec_path("measure")) if _is_data(target) else target
    _, team = values_below(file, os.environ)
    if _is_data(target):
        place = S3Location("folder", "data/") if options.is_folder(target) else parse_s3_uri(target)
        uri = str(place).rstrip("/") + "/"  # FastFile needs a whole folder
        if chosen:
            raise click.UsageError(f"{' '.join(chosen)}: only a spec has channels; leave it out")
        arrivals, form = _of_prefix(uri), loop.format or "objects"
        own = [*own_output("measure", f"s3://{place.bucket}/measure/"), *own]
    else:
        found = _chosen(launcher.load(file, sets=sets), chosen, file)
        types = [channel.content_type for channel in found.values() if channel.content_type]
        form = loop.format or format_of(types[0] if types else None).name
        arrivals = _arrivals(found)
    ways = _ways(loop.ways, arrivals, form)
    needed = {next(name for name in way.arrivals if name in arrivals) for way in ways}
    if "pipe" in arrivals and not SHORT_NAMES[form].boundaries:
        arrivals["pipe"]["record_wrapper_type"] = "RecordIO"  # without it, objects lose their boundaries
    if form in MIME_TYPES:
        for channel in arrivals.values():
            channel["content_type"] = MIME_TYPES[form]
    locked = {each.path[0] for each in team.locked}
    values: dict[str, Any] = {
        **{key: None for key in _DROPPED.split() if key not in locked},
        "base_name": "measure",
        "channels": {name: channel for name, channel in arrivals.items() if name in needed},
        "hyperparameters": {
            "ways": ",".join(way.name for way in ways),
            "format": form,
            "batch-size": loop.batch_size,
            "num-workers": loop.num_workers,
            "rounds": loop.rounds,
            **({"step": loop.step} if loop.step is not None else {}),
        },
        "code.entry_point": "entrypoints/measure.py",
        "code.command": None,
        "code.arguments": "--name value",
        "resource_config.instance_count": 1,
    }
    return launcher.load(file, sets=[*own, *(Assignment(*each, "launch measure") for each in values.items())])


@contextmanager
def _refused(option: str = "") -> Iterator[None]:
    """Raise InputError for what is wrong with an argument."""
    try:
        yield
    except ConfigError as error:
        raise InputError(f"{option}{error}") from None


def _channels_here(target: str, plan: launcher.Plan, channels: Sequence[str], sets: Sets) -> tuple[str, ...]:
    """Return the folders of the plan's channels, by which the data of a folder, or of the spec's channels, arrive."""
    folders = dict.fromkeys(plan.spec.all_channels, target) if options.is_folder(target) else {}
    if not _is_data(target):
        known = launcher.load(target, sets=sets).all_channels
        for text in channels:
            name, _, path = text.partition("=")
            arrivals = _arrivals({name: known[name]}) if name in known else [name]
            folders |= {each: path for each in arrivals if each in plan.spec.all_channels or name not in known}
    return tuple(f"{name}={path}" for name, path in folders.items())


def _print_json(results: Results) -> None:
    options.print_json({**results, "summary": summary(results)})


def _of_prefix(uri: str) -> dict[str, dict[str, Any]]:
    """Return the channels by which a prefix can arrive, by their names in sagemaker_channels.tools.ways.ARRIVALS."""
    return {
        name: {"source": source, "s3_uri": uri, **keys}
        for source, kind in KINDS.items()
        if "s3_uri" in kind.model_fields
        for name, keys in kind.MEASURED_AS.items()
    }


def _chosen(spec: launcher.JobSpec, names: Sequence[str], file: str) -> dict[str, BaseChannel]:
    """Return the channels that are meant. Raises InputError if that is unknown."""
    known = spec.all_channels
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(known) or 'none'}"
            raise InputError(f"{file}: there is no channel {name!r}{hint}")
    if not names and len(known) != 1:
        example = next(iter(known), "train")
        listed = f"has {len(known)} channels: {', '.join(known)}" if known else "has no channel"
        raise InputError(f"{file} {listed}; name the one to measure, such as: launch measure {file} {example}")
    return {name: known[name] for name in names or known}


def _arrivals(channels: Mapping[str, BaseChannel]) -> dict[str, dict[str, Any]]:
    """Return the channels by which the data of some channels of a spec can arrive. Raises InputError if one cannot be measured."""
    found: dict[str, dict[str, Any]] = {}
    for name, channel in channels.items():
        values = channel.model_dump(mode="json", exclude_unset=True)
        if values.get("s3_uri") and values.get("s3_data_type", "S3Prefix") == "S3Prefix":
            more = _of_prefix(values["s3_uri"])
        elif "s3_uri" not in type(channel).model_fields and channel.MEASURED_AS:
            more = {each: {**values, "source": channel.source, **keys} for each, keys in channel.MEASURED_AS.items()}
        else:
            what = f"channel {name!r} is neither a prefix in S3 nor a file system"
            raise InputError(f"{what}; measure the prefix of its objects")
        if both := found.keys() & more:
            what = f"channel {name!r} would arrive as {', '.join(sorted(both))}, as another one does"
            raise InputError(f"{what}; measure them one by one")
        found |= more
    return found


def _ways(names: str | None, arrivals: Mapping[str, Any], form: str) -> list[Way]:
    """Return the ways to measure. Raises InputError for an unknown one, or one that cannot read this data."""
    if names is None:
        able = [way for way in WAYS.values() if way.why_not(arrivals, form) is None]
        if not able:
            raise InputError(f"--format {form}: no way reads it here; there are {', '.join(SHORT_NAMES)}")
        return able
    with _refused("--ways "):
        ways = ways_of(names)
    for way in ways:
        if (reason := way.why_not(arrivals, form)) is not None:
            raise InputError(f"--ways {way.name}: {reason}")
    return ways
