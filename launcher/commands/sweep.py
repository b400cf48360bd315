"""`launch SPEC --matrix KEY=VALUE,...`: a job for each combination of values, and a table of how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import click

import launcher
from launcher.columns import print_table
from launcher.commands import options
from launcher.console import duration, show_problems
from launcher.errors import InputError
from launcher.parsing.layers import partition
from launcher.spec.values import Plain

if TYPE_CHECKING:
    from launcher.aws.session import Account
    from launcher.parsing.layers import Assignment
    from launcher.sweeps import Member

_WORST_FIRST = (130, 4, 3, 5)  # exit codes
_MOST_METRICS = 4


matrix_options = options.group(
    "matrix",
    options.many("--matrix", "axes", metavar="KEY=VALUES", help="A job for each value, as lr=1e-3,1e-4. Repeatable."),
    click.option(
        "--max-parallel", type=click.IntRange(1), metavar="N", help="Run at most N jobs of --matrix at a time."
    ),
)


def combinations(matrix: Sequence[str]) -> list[dict[str, Plain]]:
    """Return the values of each job for texts such as `lr=1e-3,1e-4`, the last key's changing fastest. Raises InputError."""
    axes: dict[str, list[Plain]] = {}
    for text in matrix:
        key, _, listed = partition(text)
        values = [Plain(value.strip()) for value in listed.split(",")]
        if not key or key in axes or not all(values):
            raise InputError(f"--matrix {text}: expected KEY=VALUE,VALUE, such as lr=1e-3,1e-4, and each key once")
        axes[key] = values
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def members(spec: str, name: str | None, reading: options.SpecOptions, axes: Sequence[str]) -> list[Member]:
    """Plan a job for each combination of values; warnings are printed once."""
    from launcher import sweeps

    if spec == "-":
        raise InputError(
            "--matrix reads the spec once for each job, so it cannot be standard input; write it to a file"
        )

    def read(sets: Sequence[Assignment]) -> launcher.JobSpec:
        return launcher.load(spec, sets=[*reading.sets, *sets])

    jobs = sweeps.members(read, combinations(axes), name, ignore=reading.ignore, strict=reading.strict)
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
