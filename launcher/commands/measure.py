"""`launch measure`: the ways to read a prefix or a channel, measured by a job of the bundled script or here."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import click

import channel_specs
import launcher
from launcher.commands.effects import PlanningCommand
from launcher.commands.effects.local import Local
from launcher.commands.effects.submit import Submit
from launcher.commands.options import SpecOrUri, argument, is_folder, open_account, option, plot_file
from launcher.console import print_line, say, shown_path
from launcher.errors import InputError, RefusedError, did_you_mean
from launcher.plot import new_figure, save
from launcher.s3.uri import S3Location, parse_s3_uri
from launcher.spec.channels.base import BaseChannel
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.formats import SHORT_NAMES, format_of
from sagemaker_channels.tools.card import Way
from sagemaker_channels.tools.results import FILE, Results, summary, table
from sagemaker_channels.tools.ways import WAYS, step_seconds, ways_of

_POSITIVE = click.IntRange(min=1)
_FILE_SYSTEMS = {"EFS": "efs", "FSxLustre": "fsx"}  # the channel's source -> the arrival
_DROPPED = "training_job_name checkpoint_config metric_definitions container_entrypoint container_arguments"


def _names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Complete the last of the ways' names."""
    before, comma, last = typed.rpartition(",")
    return [f"{before}{comma}{name}" for name in WAYS if name.startswith(last)]


class Measure(PlanningCommand):
    """Measure each way to read a prefix or a channel.

    Measure how fast each way reads SPEC_OR_DATA in a training loop: s3://bucket/prefix, or CHANNEL of a job's spec, whose image,
    role, instance type and code are then used. A job of `launch --example measure` does it, or this machine with --local; a
    folder, such as ./images, is always measured here. All
    ways must yield the same samples, by digest. Each round starts a fresh process per way. A measure.json of an earlier
    measurement is shown again.
    """

    example = "measure s3://mine/train/ --ways fast-file,connector-iterable --dry-run"

    target: str = argument(type=SpecOrUri(), metavar="SPEC_OR_DATA")
    chosen: tuple[str, ...] = argument(nargs=-1, metavar="[CHANNEL]...")
    ways: str | None = option(
        metavar="A,B", shell_complete=_names, help="The ways to measure; by default all that can read the data."
    )
    format: str | None = option(
        metavar="FORMAT",
        help="What an object holds, such as tar; by default what the channel's content_type says, else one sample.",
    )
    rounds: int = option(type=_POSITIVE, metavar="N", default=3, help="Measured runs of each way; 3 by default.")
    batch_size: int = option(type=_POSITIVE, metavar="N", default=4, help="Samples in a batch; 4 by default.")
    num_workers: int = option(
        type=click.IntRange(min=0), metavar="N", default=4, help="Worker processes of the loader; 4 by default."
    )
    step: str | None = option(
        metavar="STEP", help="A training step: module:function of a batch, or a time such as 20ms; by default nothing."
    )
    name: str | None = option(help="The job's full name.")
    plot: Path | None = plot_file("With --local or a measure.json: draw the speeds")

    def __init__(self, values: Mapping[str, Any]) -> None:
        folder = is_folder(values["target"] or "")
        if folder and (values["dry_run"] or values["check"]):
            raise click.UsageError(f"{values['target']} is measured on this machine; leave out --dry-run and --check")
        here = {"local": values["local"] or "process"} if folder else {}
        super().__init__({**values, **here})

    def run(self) -> int:
        """Fill in the spec, carry out the chosen effect, and show what a run here has measured."""
        is_local = isinstance(self.effect, Local)
        if self.plot and not (is_local or self.target.endswith(".json")):
            raise click.UsageError("--plot works only with --local or a measure.json; get that from the job's outputs")
        if self.target.endswith(".json"):
            self._show(_read(Path(self.target)))
            return 0
        plan = self.plan(self._spec(), self.name)
        # With --json, the run's own result is not printed beside the measured figures.
        with redirect_stdout(io.StringIO()) if is_local and self.as_json else nullcontext():
            code = self._run_here(plan, self.effect) if isinstance(self.effect, Local) else self.carry_out(plan)
        file = Path(".launch", plan.request["TrainingJobName"], "algo-1/ml/output/data", FILE)
        if is_local and file.exists():
            self._show(_read(file), in_log=True)
            say(f"results {shown_path(file)}")
        elif isinstance(self.effect, Submit):
            request = plan.request
            place = f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/output/output.tar.gz"
            say(f"results {FILE} in {place}, when the job has ended")
        return code

    def _spec(self) -> launcher.JobSpec:
        """Return the spec of the job that measures."""
        _check_step(self.step)
        own = list(self.sets)
        if self._is_prefix:
            try:
                place = S3Location("folder", "") if is_folder(self.target) else parse_s3_uri(self.target)
                uri = str(place).rstrip("/") + "/"  # FastFile needs a whole folder
            except RefusedError as error:
                raise InputError(str(error)) from None
            if self.chosen:
                raise click.UsageError(f"{' '.join(self.chosen)}: only a spec has channels; leave it out")
            file, arrivals, form = str(channel_specs.path("measure")), _of_prefix(uri), self.format or "objects"
            if isinstance(self.effect, Local) and self.effect.channels:
                raise click.UsageError(
                    f"--channel: {self.target} has no channels; measure the folder: launch measure DIR"
                )
            own.insert(0, f"output_data_config.s3_output_path=s3://{place.bucket}/measure/")  # not the example's bucket
        else:
            file = self.target
            found = _chosen(launcher.load(file, sets=self.sets), self.chosen, file)
            types = [channel.content_type for channel in found.values() if channel.content_type]
            form = self.format or format_of(types[0] if types else None).name
            arrivals = _arrivals(found)
        ways = _ways(self.ways, arrivals, form)
        needed = {next(name for name in way.arrivals if name in arrivals) for way in ways}
        if form == "objects" and "pipe" in arrivals:
            arrivals["pipe"]["record_wrapper_type"] = "RecordIO"  # without it, objects lose their boundaries
        elif form in SHORT_NAMES:
            for channel in arrivals.values():
                channel["content_type"] = next(iter(SHORT_NAMES[form].content_types), form)
        loop = {"batch-size": self.batch_size, "num-workers": self.num_workers, "rounds": self.rounds}
        values: dict[str, Any] = {
            **dict.fromkeys(_DROPPED.split()),
            "base_name": "measure",
            "channels": {name: channel for name, channel in arrivals.items() if name in needed},
            "hyperparameters": {
                "ways": ",".join(way.name for way in ways),
                "format": form,
                **loop,
                **({"step": self.step} if self.step is not None else {}),
            },
            "code.entry_point": "entrypoints/measure.py",
            "code.launcher": "python",
            "resource_config.instance_count": 1,
        }
        return launcher.load(file, sets=[*own, *(f"{path}={json.dumps(value)}" for path, value in values.items())])

    @property
    def _is_prefix(self) -> bool:
        return "://" in self.target or is_folder(self.target)

    def _run_here(self, plan: launcher.Plan, local: Local) -> int:
        """Run the plan here; its channels are those by which the data of a folder, or of the spec's channels, arrive."""
        folders = dict.fromkeys(plan.spec.all_channels, self.target) if is_folder(self.target) else {}
        if not self._is_prefix:
            known = launcher.load(self.target, sets=self.sets).all_channels
            for text in local.channels:
                name, _, path = text.partition("=")
                arrivals = _arrivals({name: known[name]}) if name in known else [name]
                folders |= {each: path for each in arrivals if each in plan.spec.all_channels or name not in known}
        channels = tuple(f"{name}={path}" for name, path in folders.items())
        here = Local({**vars(local), "channels": channels})
        return here.carry_out(plan, lambda: open_account(plan.spec.region, plan.spec.profile))

    def _show(self, results: Results, *, in_log: bool = False) -> None:
        if self.as_json:
            self.print_json({**results, "summary": summary(results)})
        elif not in_log:
            print_line("\n".join(table(results)))
        if self.plot:
            _draw(results, self.plot)
            say(f"plot {shown_path(self.plot)}")


def _check_step(step: str | None) -> None:
    """Raise InputError if it is neither a function nor a time."""
    try:
        if step is not None:
            step_seconds(step)
    except ConfigError as error:
        raise InputError(str(error)) from None


def _of_prefix(uri: str) -> dict[str, dict[str, Any]]:
    """Return the channels by which a prefix can arrive, by their names in sagemaker_channels.tools.card.ARRIVALS."""
    modes = {"file": "File", "fast_file": "FastFile", "pipe": "Pipe"}
    return {
        **{name: {"s3_uri": uri, "input_mode": mode} for name, mode in modes.items()},
        "s3": {"source": "S3Connector", "s3_uri": uri},
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
        if channel.source in _FILE_SYSTEMS:
            more = {_FILE_SYSTEMS[channel.source]: {**values, "source": channel.source}}
        elif values.get("s3_uri") and values.get("s3_data_type", "S3Prefix") == "S3Prefix":
            more = _of_prefix(values["s3_uri"])
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
    try:
        ways = ways_of(names)
    except ConfigError as error:
        raise InputError(f"--ways {error}") from None
    for way in ways:
        if (reason := way.why_not(arrivals, form)) is not None:
            raise InputError(f"--ways {way.name}: {reason}")
    return ways


def _read(file: Path) -> Results:
    """Return the results in a file. Raises InputError if it has none."""
    try:
        results: Results = json.loads(file.read_text(encoding="utf-8"))
        summary(results)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}; correct the path") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{file}: is no measure.json of `launch measure`") from None
    return results


def _draw(results: Results, file: Path) -> None:
    """Draw a bar for each way, the fastest first, with the spread of its rounds. Raises RefusedError if it cannot be written."""
    rows = [row for row in summary(results) if "rounds" in row]
    speeds = [row["samples_per_second"] for row in rows]
    below = [row["samples_per_second"] - row["slowest"] for row in rows]
    above = [row["fastest"] - row["samples_per_second"] for row in rows]
    figure = new_figure(8, 1.5 + 0.3 * len(rows))
    axes = figure.add_subplot()
    axes.barh([row["title"] for row in rows], speeds, xerr=[below, above], capsize=3)
    axes.invert_yaxis()
    axes.set_xlabel("samples/s: the median of the rounds, and their spread")
    axes.grid(axis="x", alpha=0.3)
    save(figure, file)
