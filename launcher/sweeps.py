"""A sweep: a job for each combination of values, in the account or on this machine. `launch --matrix` uses the same functions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from functools import partial
from io import StringIO
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from launcher import api
from launcher.console import Console, counted
from launcher.cost.limit import attempts_of, refuse_above_limit
from launcher.errors import InputError, LaunchError, RefusedError, StoppedError
from launcher.jobs.sweep import TAG, assignments, member_name, run_sweep, sweep_name
from launcher.parsing.layers import Assignment
from launcher.parsing.parser import load, parse_spec
from launcher.planning import Plan
from launcher.spec.job import JobSpec

if TYPE_CHECKING:
    from launcher.aws.account import Account
    from launcher.jobs.outcome import Outcome
    from launcher.local.workspace import LocalOptions

_MOST_JOBS = 1000


class Member(NamedTuple):
    """One job of a sweep."""

    values: Mapping[str, Any]
    plan: Plan


def sweep(
    spec: Mapping[str, Any] | str | PathLike[str],
    values: Mapping[str, Iterable[Any]],
    *,
    name: str | None = None,
    local: LocalOptions | None = None,
    max_parallel: int | None = None,
    yes: bool = False,
) -> list[dict[str, Any]]:
    """Create and follow a job for each combination of values, or run it on this machine, as `launch --matrix` does.

    The same call resumes after an interruption: jobs that exist, and local runs that have ended, are not repeated.

    Args:
        spec: The path of a spec, or its keys and values as a mapping.
        values: The values of each key: {"lr": [1e-3, 1e-4], "resource_config.instance_count": [1, 2]}. A key is a hyperparameter,
            or if it is a key of the spec or has a dot, a path as for `plan`.
        name: The sweep's name; by default `training_job_name`, or `base_name` without a time.
        local: The options of the runs on this machine, such as LocalOptions(); without it, the jobs are created in the account.
        max_parallel: How many jobs run at a time in the account; by default all.
        yes: Whether all jobs together may cost more than $100, or have an unknown price, as for `submit`.

    Returns:
        A row for each job, in the form of `--json`, which pandas.json_normalize makes a table: its name, values (`Matrix`),
        status and `Metrics`, or the `error` for which it was not created.

    Raises:
        SpecError, InputError: The spec or the values are wrong; nothing was created.
        RefusedError: The jobs may cost too much, or a run cannot start.
    """
    are_texts = any(isinstance(each, str) for each in values.values())
    combinations = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    if isinstance(spec, JobSpec) or are_texts or combinations in ([], [{}]):
        raise TypeError('a sweep needs a spec that is not loaded, and lists of values such as {"lr": [1e-3, 1e-4]}')

    def read(sets: Sequence[Assignment]) -> JobSpec:
        if isinstance(spec, Mapping):
            return parse_spec(spec, "<spec>", sets=sets, environ=os.environ)
        return load(str(spec), sets=sets)

    jobs = members(read, combinations, name, as_set=partial(json.dumps, default=str))  # JSON is YAML: "no" stays a text
    if local is not None:
        return rows(jobs, run_here(jobs, local))
    from launcher.aws.account import Account

    account = Account(region=jobs[0].plan.spec.region, profile=jobs[0].plan.spec.profile)
    return rows(jobs, run_there(jobs, account, Console(), max_parallel, agree="sweep(..., yes=True)", agreed=yes))


def members(
    read: Callable[[Sequence[Assignment]], JobSpec],
    combinations: Sequence[Mapping[str, Any]],
    name: str | None,
    *,
    as_set: Callable[[Any], str] = str,
    **plan_options: Any,
) -> list[Member]:
    """Plan a job for each combination of values; `read` returns the spec with assignments, and `as_set` writes a value into one."""
    if len(combinations) > _MOST_JOBS:
        raise InputError(
            f"--matrix: {len(combinations):,} combinations, but at most {_MOST_JOBS:,} jobs; write fewer values"
        )
    found: dict[str, Member] = {}
    for values in combinations:
        sets = assignments({key: as_set(value) for key, value in values.items()})
        sweep = sweep_name(read(sets), name)
        tag = Assignment(f"tags.{TAG}={sweep}", "--matrix")
        texts = [value if isinstance(value, str) else json.dumps(value, default=str) for value in values.values()]
        member = member_name(sweep, dict(zip(values, texts, strict=True)))
        if member in found:
            remedy = "write values that differ in letters or digits"
            raise InputError(f"--matrix: two jobs would be named {member}; {remedy}")
        found[member] = Member(values, api.plan(read([*sets, tag]), name=member, **plan_options))
    return list(found.values())


def run_there(
    jobs: Sequence[Member], account: Account, console: Console, max_parallel: int | None, *, agree: str, agreed: bool
) -> dict[str, Outcome | LaunchError]:
    """Create the jobs in the account, follow them to their end, and return how each ended, by name.

    Raises RefusedError if all together may cost too much, unless that is `agreed`; `agree` is how to.
    """
    if max_parallel and jobs[0].plan.spec.queue is not None:
        raise InputError("--max-parallel and a queue exclude each other, since the queue decides; pass one of them")
    for member in jobs:
        runs = len(jobs) * attempts_of(member.plan.spec)
        refuse_above_limit(member.plan, account.region, agree=agree, agreed=agreed, runs=runs)
    console.say(f"sweep     {counted(len(jobs), 'job')}")
    return run_sweep([each.plan for each in jobs], account, console, max_parallel or len(jobs))


def run_here(jobs: Sequence[Member], options: LocalOptions) -> dict[str, Outcome | LaunchError]:
    """Run the jobs on this machine, one after the other, and return how each ended, by name.

    Those that have ended here before are not repeated, except if Ctrl-C or `kill` ended them in an earlier call of this sweep.
    """
    from launcher.jobs.outcome import Outcome
    from launcher.local.leftovers import remove_run
    from launcher.local.runs import local_run, run_names

    console, results = Console(as_json=options.as_json), dict[str, Outcome | LaunchError]()
    for member in jobs:
        name = member.plan.request["TrainingJobName"]
        earlier = local_run(name) if name in run_names() else {}
        if earlier and _was_interrupted(earlier) and _sweep_of(earlier["Request"]) == _sweep_of(member.plan.request):
            console.say(f"repeated  the local run {name}, which was interrupted")
            remove_run(Path(earlier["Folder"]), console.warn)
        elif result := earlier.get("Result"):
            console.say(f"found     the local run {name}, which is not repeated; `launch clean {name}` removes it")
            results[name] = Outcome(result, result["Metrics"])
            continue
        # Each run prints its result as JSON; all are returned as one list at the end.
        with redirect_stdout(StringIO()) if options.as_json else nullcontext():
            results[name] = outcome = api.run_local(member.plan, options=options)
        if _was_interrupted({"Result": outcome.description}):
            error = KeyboardInterrupt if outcome.exit_code not in (0, StoppedError.exit_code) else StoppedError
            raise error(f"{name} was interrupted; the same command repeats it, and runs those that are left")
    return results


def _was_interrupted(run: Mapping[str, Any]) -> bool:
    """Return whether a signal ended a described local run, or the process that carried it out."""
    if result := run.get("Result"):
        return bool(result["SecondaryStatus"] == "Stopped" and not result["FailureReason"])
    return bool(run["TrainingJobStatus"] != "InProgress")


def _sweep_of(request: Mapping[str, Any]) -> list[str]:
    return [tag["Value"] for tag in request.get("Tags", ()) if tag["Key"] == TAG]


def rows(jobs: Sequence[Member], results: Mapping[str, Outcome | LaunchError]) -> list[dict[str, Any]]:
    """Return the data of each job for programs: name, values, and how it ended, with the metrics that AWS or its lines have."""
    found = []
    for member in jobs:
        name = member.plan.request["TrainingJobName"]
        ended = results.get(name, RefusedError("not created"))
        if isinstance(ended, LaunchError):
            data: dict[str, Any] = {"error": str(ended), "ExitCode": ended.exit_code}
        else:
            data = ended.as_data()
            final = {each["MetricName"]: each["Value"] for each in data.get("FinalMetricDataList", ())}
            data["Metrics"] = {**final, **data["Metrics"]}
        found.append({"TrainingJobName": name, "Matrix": dict(member.values)} | data)
    return found
