"""`launch SPEC --matrix KEY=VALUE,...`: a job for each combination of values, and a table of how they ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import launcher
from launcher.columns import print_table
from launcher.commands import options
from launcher.console import Console, counted, duration, print_line, say, show_problems
from launcher.cost.limit import attempts_of, refuse_above_limit
from launcher.errors import InputError, LaunchError, RefusedError, StoppedError

if TYPE_CHECKING:
    from launcher.aws.account import Account
    from launcher.jobs.sweep import Values

_COLOURS = {"Completed": "green", "Failed": "red", "Stopped": "yellow", "not created": "red"}
_WORST_FIRST = (130, 4, 3, 5)  # exit codes
_MOST_METRICS = 4
_MOST_JOBS = 1000


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


class Member(NamedTuple):
    """One job of a sweep."""

    values: Values
    plan: launcher.Plan


def members(spec: str, name: str | None, reading: options.SpecOptions, matrix: Matrix) -> list[Member]:
    """Plan a job for each combination of values; warnings are printed once."""
    from launcher.jobs.sweep import TAG, assignments, combinations, member_name, sweep_name
    from launcher.parsing.layers import Assignment

    if spec == "-":
        raise InputError(
            "--matrix reads the spec once for each job, so it cannot be standard input; write it to a file"
        )
    found: dict[str, Member] = {}
    asked = combinations(matrix.axes)
    if len(asked) > _MOST_JOBS:
        raise InputError(f"--matrix: {len(asked):,} combinations, but at most {_MOST_JOBS:,} jobs; write fewer values")
    for values in asked:
        loaded = launcher.load(spec, sets=[*reading.sets, *assignments(values)])
        sweep = sweep_name(loaded, name)
        member = member_name(sweep, values)
        tag = Assignment(f"tags.{TAG}={sweep}", "--matrix")
        loaded = launcher.load(spec, sets=[*reading.sets, *assignments(values), tag])
        plan = launcher.plan(loaded, name=member, ignore=reading.ignore, strict=reading.strict)
        if member in found:
            raise InputError(
                f"--matrix: two jobs would be named {member}; write values that differ in letters or digits"
            )
        if not found:
            show_problems(plan.warnings)
        found[member] = Member(values, plan)
    return list(found.values())


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
    from launcher.jobs.sweep import run_sweep

    if matrix.max_parallel and jobs[0].plan.spec.queue is not None:
        raise click.UsageError(
            "--max-parallel and a queue exclude each other, since the queue decides; pass one of them"
        )
    for member in jobs:
        runs = len(jobs) * attempts_of(member.plan.spec)
        refuse_above_limit(member.plan, account.region, agree="--yes", agreed=yes, runs=runs)
    say(f"sweep     {counted(len(jobs), 'job')}")
    results = run_sweep(
        [each.plan for each in jobs], account, Console(as_json=as_json), matrix.max_parallel or len(jobs)
    )
    return show(jobs, results, as_json=as_json)


def run_here(jobs: Sequence[Member], local: launcher.LocalOptions) -> int:
    """Run the jobs on this machine, one after the other; those that have ended here before are not repeated."""
    from launcher.jobs.outcome import Outcome
    from launcher.local.runs import local_run, run_names

    results: dict[str, Any] = {}
    for member in jobs:
        name = member.plan.request["TrainingJobName"]
        if name in run_names() and (result := local_run(name).get("Result")):
            again = (
                f"; to repeat it, remove it: launch clean {name}" if result["TrainingJobStatus"] == "Stopped" else ""
            )
            say(f"found     the local run {name}, which is not repeated{again}")
            results[name] = Outcome(result, result.get("Metrics") or {}, local_exit_code=result.get("ExitCode"))
        else:
            # Each run prints its result as JSON; all are printed as one list at the end.
            with redirect_stdout(StringIO()) if local.as_json else nullcontext():
                results[name] = launcher.run_local(member.plan, options=local)
            interrupted = f"`launch clean {name}` removes the interrupted run; then the same command resumes with it"
            if results[name].exit_code == 130:
                raise KeyboardInterrupt(interrupted)
            if results[name].description.get("SecondaryStatus") == "Stopped" and local.stop_after is None:
                raise StoppedError(interrupted)
    return show(jobs, results, as_json=local.as_json)


def show(jobs: Sequence[Member], results: dict[str, Any], *, as_json: bool) -> int:
    """Print a row for each job, or JSON, and return the exit code of the worst."""
    ended = [results.get(each.plan.request["TrainingJobName"], RefusedError("not created")) for each in jobs]
    codes = {each.exit_code for each in ended}
    worst = next((code for code in _WORST_FIRST if code in codes), 0)
    if as_json:
        data = [{"error": str(each)} if isinstance(each, LaunchError) else each.as_data() for each in ended]
        names = [{"TrainingJobName": each.plan.request["TrainingJobName"], "Matrix": each.values} for each in jobs]
        options.print_json([about | of_job for about, of_job in zip(names, data, strict=True)])
        return worst
    metrics = list(dict.fromkeys(name for each in ended for name in _metrics(each)))[:_MOST_METRICS]
    rows = []
    for member, result in zip(jobs, ended, strict=True):
        status = "not created" if isinstance(result, LaunchError) else result.status
        seconds = None if isinstance(result, LaunchError) else result.description.get("TrainingTimeInSeconds")
        values = [f"{_metrics(result)[name]:.6g}" if name in _metrics(result) else "-" for name in metrics]
        took = "-" if seconds is None else duration(seconds)
        rows.append((member.plan.request["TrainingJobName"], status, took, *member.values.values(), *values))
    if not sys.stdout.isatty():
        print_line("  ".join(("name", "status", "trained", *jobs[0].values, *metrics)))
    print_table(("name", "status", "trained", *jobs[0].values, *metrics), rows, _COLOURS)
    return worst


def _metrics(result: Any) -> dict[str, float]:
    if isinstance(result, LaunchError):
        return {}
    final = {each["MetricName"]: each["Value"] for each in result.description.get("FinalMetricDataList") or ()}
    return {**final, **result.metrics}
