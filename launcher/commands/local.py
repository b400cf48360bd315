"""`launch local` and `clean`: runs on this machine. Their options are those of `launcher.LocalOptions`."""

from __future__ import annotations

import sys
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

import launcher
from launcher.commands import options, sweep
from launcher.commands.ending import after_end, on_end_option
from launcher.console import Console, counted, duration, human_bytes, say, show_error
from launcher.errors import RefusedError, StoppedError
from launcher.spec.channels import KINDS

_RUNNERS = click.Choice(("process", "docker", "podman"))
_HOSTS = click.IntRange(min=1, max=1000)  # each is folders and processes of this machine
_DATA = dict.fromkeys(f"DIR/{kind.DATA}" for kind in KINDS.values() if kind.DATA)

# `--local docker` is `--runner docker`: so `launch job.yaml --local docker` means `launch local job.yaml --runner docker`.
_runner_option = click.option(
    "--runner",
    "--local",
    "runner",
    type=_RUNNERS,
    default="process",
    is_flag=False,
    flag_value="process",
    help="What runs the job: the Python that runs `launch`, or docker or podman with the image.",
)
here_option = click.option(
    "--local",
    "runner",
    type=_RUNNERS,
    is_flag=False,
    flag_value="process",
    help="Run the job on this machine, as SageMaker would: in the Python that runs `launch`, or in the image.",
)
yes_option = options.flag("--yes", help="Answer yes to every question.")
data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"A folder in place of AWS's storage: {', '.join(_DATA)}.",
)
_OPTIONS = (
    click.option("--image", metavar="IMAGE", help="With docker or podman: the image to run in place of the spec's."),
    data_option,
    options.many(
        "--mount", "mounts", metavar="FS-ID=PATH", help="The directory in place of a file system. Repeatable."
    ),
    options.many(
        "--channel",
        "channels",
        metavar="NAME=PATH",
        help="The folder, file or manifest that a channel reads. Repeatable.",
    ),
    click.option(
        "--sample",
        type=click.IntRange(min=1),
        metavar="N",
        help="Read only N objects of each channel, evenly spaced over their keys.",
    ),
    click.option("--instance-count", type=_HOSTS, metavar="N", help="Run N hosts, whatever the spec says."),
    click.option(
        "--resume",
        metavar="NAME",
        shell_complete=options.one_of("launcher.local.runs:run_names"),
        help="Begin with the checkpoints of an earlier local run, or of the latest: --resume latest.",
    ),
    click.option(
        "--stop-after",
        type=options.duration,
        metavar="TIME",
        help="Stop the job after this time, such as 90s or 10m, as StopTrainingJob does.",
    ),
    click.option(
        "--interrupt-after",
        type=options.duration,
        metavar="TIME",
        help="Interrupt the job once after this time, as spot instances are, and restart it from its checkpoints.",
    ),
    click.option("--interrupt-at", metavar="TEXT", help="The same once a line of the log has TEXT, such as 'epoch 2'."),
    options.flag("--no-namespaces", help="Run without /opt/ml; SAGEMAKER_BASE_DIR names the folder."),
    options.flag("--verbose", "-v", help="Show each difference from SageMaker, and the numbers of waits."),
)


def _local(**values: Any) -> launcher.LocalOptions:
    return launcher.LocalOptions(**values)


# Of commands that always run here, and of those that run here with --local.
run_options = options.group("local", _runner_option, *_OPTIONS, yes_option, options.json_option, kind=_local)
local_options = options.group("local", *_OPTIONS, kind=_local)


def check_local(*, is_local: bool) -> None:
    """Raise click.UsageError if a command that can run a job here or submit it has options for the other."""
    options.refuse_together(
        "runner", "dry_run", "check", "full", "no_check", "follow", "wait", "stop_on_exit", "on_end"
    )
    own = {each.name for each in fields(launcher.LocalOptions)} - {"runner", "yes", "as_json"}
    if not is_local and (found := options.given(*own)):
        raise click.UsageError(f"{found[0]} works only with --local; add --local or leave it out")


@options.command("local", "local job.yaml --channel train=./images", exit_codes=(0, 2, 3, 4, 5))
@options.spec_argument
@options.name_option
@options.many("--matrix", "axes", metavar="KEY=VALUES", help="A run for each value, as lr=1e-3,1e-4. Repeatable.")
@options.spec_options
@on_end_option
@run_options
def local(
    spec: str,
    name: str | None,
    axes: tuple[str, ...],
    reading: options.SpecOptions,
    on_end: str | None,
    local: launcher.LocalOptions,
) -> int:
    """Run a job on this machine, as SageMaker would.

    Each channel of SPEC is read in its own input mode, from S3, or from a folder by --data or --channel. `launch job.yaml
    --local` is the same. With --matrix, the runs are made one after the other.
    """
    options.refuse_together("axes", "on_end")
    if axes:
        from launcher.sweeps import run_here

        jobs = sweep.members(spec, name, reading, axes)
        return sweep.show(jobs, run_here(jobs, local), as_json=local.as_json)
    outcome = launcher.run_local(reading.plan(spec, name), options=local)
    after_end(outcome, Console(as_json=local.as_json), on_end)
    return outcome.exit_code


@options.command("clean", "clean --older-than 7d --yes")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=options.one_of("launcher.local.runs:run_names"))
@click.option(
    "--older-than",
    "before",
    type=options.moment_of,
    metavar="AGE",
    help="Only runs that began longer ago than this, such as 12h or 7d.",
)
@click.option("--keep", type=click.IntRange(0), default=0, metavar="N", help="Keep the latest N of these runs.")
@options.flag("--dry-run", help="Show the runs and their sizes, and remove nothing.")
@yes_option
@options.json_option
def clean(names: tuple[str, ...], before: datetime | None, keep: int, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove local runs, with their outputs and checkpoints.

    Those are the local runs NAME below ./.launch, or all that have ended, with their logs, outputs and checkpoints. Runs that
    have not ended stay, and so does ./.launch/.warm-pool. Without --yes, it shows their ages and sizes, and asks.
    """
    from launcher.local.leftovers import remove_run
    from launcher.local.runs import how_to_stop, local_run, local_runs

    found = [local_run(name) for name in dict.fromkeys(names)] if names else local_runs()
    found.sort(key=lambda run: run["CreationTime"], reverse=True)
    running = [each for each in found if each["TrainingJobStatus"] == "InProgress"]
    if names and running:
        raise RefusedError(f"{running[0]['TrainingJobName']} has not ended; {how_to_stop(running[0])}")
    ended = [each for each in found if each not in running][keep:]
    ended = [each for each in ended if before is None or each["CreationTime"] < before]
    if ended and (dry_run or not yes):
        total = _show(ended)
        if not dry_run:
            _ask(len(ended), total)
    failed: list[str] = []
    for each in () if dry_run else ended:
        remove_run(Path(each["Folder"]), failed.append)
    removed = [each["TrainingJobName"] for each in ended if dry_run or not Path(each["Folder"]).exists()]
    if as_json:
        options.print_json(removed)
    for text in failed:
        show_error(text)
    if not as_json:
        done = "would be removed" if dry_run else "removed"
        say(f"{counted(len(removed), 'run')} {done}" if ended else "no local runs to remove in ./.launch")
    return RefusedError.exit_code if failed else 0


def _show(runs: list[dict[str, Any]]) -> int:
    """Print status, age and size of each run, and return the size of all; a run that is a link has none."""
    total = 0
    for each in runs:
        folder = Path(each["Folder"])
        inside = () if folder.is_symlink() else folder.rglob("*")
        size = sum(path.lstat().st_size for path in inside if not path.is_dir())
        age = duration((datetime.now(timezone.utc) - each["CreationTime"]).total_seconds())
        total += size
        say(f"{each['TrainingJobName']}  {each['TrainingJobStatus']}  {age} ago  {human_bytes(size)}")
    return total


def _ask(count: int, total: int) -> None:
    """Ask whether to remove runs. Raises StoppedError on no, and RefusedError without a terminal."""
    if not sys.stdin.isatty():
        raise RefusedError("there is no terminal to ask on; --yes removes these runs")
    if not click.confirm(f"Remove {counted(count, 'run')} ({human_bytes(total)})?", err=True):
        raise StoppedError("nothing was removed")
