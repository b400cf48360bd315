"""`launch SPEC --matrix KEY=VALUE,...`: a job for each combination of values, and a table of how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import launcher
from launcher.columns import print_table
from launcher.commands import options
from launcher.console import Console, duration, show_problems
from launcher.errors import InputError

if TYPE_CHECKING:
    from launcher.aws.account import Account
    from launcher.parsing.layers import Assignment
    from launcher.sweeps import Member

_WORST_FIRST = (130, 4, 3, 5)  # exit codes
_MOST_METRICS = 4


class Matrix(NamedTuple):
    """What a sweep varies, and how many of its jobs run at a time."""

    axes: tuple[str, ...]
    max_parallel: int | None


matrix_options = options.group(
    "matrix",
    options.many("--matrix", "axes", metavar="KEY=VALUES", help="A job for each value, as lr=1e-3,1e-4. Repeatable."),
    click.option(
        "--max-parallel", type=click.IntRange(1), metavar="N", help="Run at most N jobs of --matrix at a time."
    ),
    kind=Matrix,
)


def is_one(matrix: Matrix) -> bool:
    """Return whether a sweep is asked for."""
    if matrix.max_parallel and not matrix.axes:
        raise click.UsageError("--max-parallel works only with --matrix; add --matrix or leave it out")
    return bool(matrix.axes)


def members(spec: str, name: str | None, reading: options.SpecOptions, matrix: Matrix) -> list[Member]:
    """Plan a job for each combination of values; warnings are printed once."""
    from launcher import sweeps
    from launcher.jobs.sweep import combinations

    if spec == "-":
        raise InputError(
            "--matrix reads the spec once for each job, so it cannot be standard input; write it to a file"
        )

    def read(sets: Sequence[Assignment]) -> launcher.JobSpec:
        return launcher.load(spec, sets=[*reading.sets, *sets])

    jobs = sweeps.members(read, combinations(matrix.axes), name, ignore=reading.ignore, strict=reading.strict)
    show_problems(jobs[0].plan.warnings)
    return jobs


def check_new(
    jobs: Sequence[Member], account: Account, reading: options.SpecOptions, *, full: bool
) -> list[launcher.Report]:
    """Ask AWS about the jobs that do not exist yet, once for those that differ in hyperparameters only; return the reports."""
    from launcher.jobs.submission import is_submitted

    asked: list[Any] = []
    reports = []
    for member in jobs:
        own = ("TrainingJobName", "HyperParameters")
        rest = {key: value for key, value in member.plan.request.items() if key not in own}
        if rest not in asked and not is_submitted(member.plan, account):
            asked.append(rest)
            reports.append(launcher.check(member.plan, account=account, full=full, ignore=reading.ignore))
    return reports


def run(jobs: Sequence[Member], matrix: Matrix, account: Account, *, yes: bool, as_json: bool) -> int:
    """Create the jobs, follow them to their end, print a table, and return the exit code of the worst."""
    from launcher import sweeps

    console = Console(as_json=as_json)
    results = sweeps.run_there(jobs, account, console, matrix.max_parallel, agree="--yes", agreed=yes)
    return show(jobs, results, as_json=as_json)


def run_here(jobs: Sequence[Member], local: launcher.LocalOptions) -> int:
    """Run the jobs on this machine, print a table, and return the exit code of the worst."""
    from launcher import sweeps

    return show(jobs, sweeps.run_here(jobs, local), as_json=local.as_json)


def show(jobs: Sequence[Member], results: Mapping[str, Any], *, as_json: bool) -> int:
    """Print a row for each job, or JSON, and return the exit code of the worst."""
    from launcher import sweeps

    rows = sweeps.rows(jobs, results)
    codes = {each["ExitCode"] for each in rows}
    if as_json:
        options.print_json(rows)
    else:
        metrics = list(dict.fromkeys(name for each in rows for name in each.get("Metrics", ())))[:_MOST_METRICS]
        titles = ("name", "status", "trained", *jobs[0].values, *metrics)
        print_table(titles, [_row(each, metrics) for each in rows], has_titles=True)
    return next((code for code in _WORST_FIRST if code in codes), 0)


def _row(row: Mapping[str, Any], metrics: Sequence[str]) -> tuple[str, ...]:
    seconds, status = row.get("TrainingTimeInSeconds"), row.get("TrainingJobStatus", "not created")
    values = {name: "nan" if value is None else f"{value:.6g}" for name, value in row.get("Metrics", {}).items()}
    took = "-" if seconds is None else duration(seconds)
    return row["TrainingJobName"], status, took, *row["Matrix"].values(), *(values.get(name, "-") for name in metrics)
