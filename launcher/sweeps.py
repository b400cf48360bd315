"""A sweep: one job for each combination of values, in the account or on this machine. `launch --matrix` uses the same functions.

Each has a name that follows from the sweep's and its values, and the tag `launch:sweep` with the sweep's name, by which its jobs
can be found. There is no other state: jobs that exist and have the same request are followed, not created again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from decimal import Decimal
from io import StringIO
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from launcher import api
from launcher.console import Console, counted, show_error
from launcher.cost.estimate import estimate
from launcher.cost.limit import attempts_of, refuse_above_limit
from launcher.cost.show import at_most
from launcher.errors import InputError, LaunchError, RefusedError, SpecPath, StoppedError
from launcher.parsing.layers import Assignment, steps_of
from launcher.parsing.parser import load, parse_spec
from launcher.planning import Plan
from launcher.spec.job import JobSpec
from launcher.spec.names import MAX_LENGTH, beginning

if TYPE_CHECKING:
    from launcher.aws.session import Account
    from launcher.jobs.outcome import Outcome
    from launcher.local.workspace import LocalOptions

TAG = "launch:sweep"
_ROUND_SECONDS = 5.0
_PACE_SECONDS = 0.5  # between two descriptions: ListTrainingJobs and its like have low quotas, which a team shares
_DIGEST = 8  # characters


class Member(NamedTuple):
    """One job of a sweep."""

    values: Mapping[str, Any]  # by the key that was typed
    plan: Plan

    @property
    def name(self) -> str:
        return str(self.plan.request["TrainingJobName"])


def sweep(
    spec: Mapping[str, Any] | str | PathLike[str],
    values: Mapping[str, Any],
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

    jobs = members(read, combinations, name)
    if local is not None:
        return rows(jobs, run_here(jobs, local))
    from launcher.aws.session import Account

    account = Account(region=jobs[0].plan.spec.region, profile=jobs[0].plan.spec.profile)
    return rows(jobs, run_there(jobs, account, Console(), max_parallel, agree="sweep(..., yes=True)", agreed=yes))


def members(
    read: Callable[[Sequence[Assignment]], JobSpec],
    combinations: Sequence[Mapping[str, Any]],
    name: str | None,
    **plan_options: Any,
) -> list[Member]:
    """Plan a job for each combination of values; `read` returns the spec with assignments."""
    found: dict[str, Member] = {}
    all_sets = list(map(assignments, combinations))
    if not (sweep := name):
        first = read(all_sets[0])
        # Without a time, so that the same command finds its jobs again.
        sweep = first.training_job_name or beginning(first.base_name or "job")
    for values, sets in zip(combinations, all_sets, strict=True):
        texts = {key: each if isinstance(each, str) else json.dumps(each, default=str) for key, each in values.items()}
        member = member_name(sweep, texts)
        if member in found:
            raise InputError(f"--matrix: two jobs would be named {member}; write values that differ")
        tagged = read([*sets, Assignment(f"tags.{TAG}", sweep, "--matrix")])
        found[member] = Member(values, api.plan(tagged, name=member, **plan_options))
    return list(found.values())


def assignments(values: Mapping[str, Any]) -> list[Assignment]:
    """Return what is set in the spec: a key of the spec, or one with a dot, is a path; any other is a hyperparameter."""
    paths, keys = dict[str, str](), dict[SpecPath, str]()
    for key in values:
        is_path = len(steps_of(key)) > 1 or key in JobSpec.model_fields
        paths[key] = key if is_path else f"hyperparameters.{key}"
        if (other := keys.setdefault(steps_of(paths[key]) or (key,), key)) != key:
            raise InputError(f"--matrix: {other} and {key} are the same key; write one of them")
        if steps_of(key) in (("base_name",), ("training_job_name",)):
            raise InputError(
                f"--matrix: {key} cannot vary: a job is named by the sweep and its values; name the sweep by --name"
            )
    return [Assignment(paths[key], value, f"--matrix {key}") for key, value in values.items()]


def member_name(sweep: str, values: Mapping[str, str]) -> str:
    """Return `digits-lr-1e-3-batch-32`; a digest ends a name that is too long or could be that of other values."""
    words = [sweep, *(text for key, value in values.items() for text in (key.rpartition(".")[2], value))]
    name = re.sub("[^A-Za-z0-9]+", "-", "-".join(words)).strip("-")
    is_plain = all(re.fullmatch(r"[A-Za-z0-9]+([-.][A-Za-z0-9]+)*", value) for value in values.values())
    if is_plain and len(name) <= MAX_LENGTH:
        return name
    digest = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:_DIGEST]
    return f"{name[: MAX_LENGTH - _DIGEST - 1].rstrip('-')}-{digest}"


def run_there(
    jobs: Sequence[Member], account: Account, console: Console, max_parallel: int | None, *, agree: str, agreed: bool
) -> dict[str, Outcome | LaunchError]:
    """Create the jobs that do not exist, at most `max_parallel` at a time, and return how each ended, by name.

    After a refusal no more jobs are created, and the existing ones are followed to their end. Ctrl-C leaves them running.
    Raises RefusedError if all together may cost too much, unless that is `agreed`; `agree` is how to.
    """
    from launcher.jobs.follow import look_at
    from launcher.jobs.lookup import tried
    from launcher.jobs.submission import submit

    if max_parallel and jobs[0].plan.spec.queue is not None:
        raise InputError("--max-parallel and a queue exclude each other, since the queue decides; pass one of them")
    costs = list[Decimal]()
    for member in jobs:
        runs = attempts_of(member.plan.spec)
        refuse_above_limit(member.plan, account.region, agree=agree, agreed=agreed, runs=len(jobs) * runs)
        found = estimate(member.plan.request, account.region)
        costs += [usd * runs] if found and (usd := found.usd["altogether"]) is not None else []
    cost = f"{at_most(sum(costs, Decimal()))}, an estimate" if len(costs) == len(jobs) else "unknown"
    console.say(f"sweep     {counted(len(jobs), 'job')}\ncost      {cost}; `launch cost` shows more")
    results: dict[str, Outcome | LaunchError] = {}
    waiting, running = deque(jobs), dict[str, str]()  # name -> ID of its service job
    shown: dict[str, str] = {}  # status
    try:
        while waiting or running:
            while waiting and len(running) < (max_parallel or len(jobs)):
                member = waiting[0]  # until it is known that its job exists
                try:
                    running[member.name] = submit(member.plan, account, console, again=True).service_job
                    waiting.popleft()
                except LaunchError as error:
                    results[member.name] = error
                    waiting.clear()
                    show_error(f"{member.name}: {error}{error.remedy}; no more jobs are created")
            for name in list(running):
                time.sleep(_PACE_SECONDS)
                has_ended = _has_ended(account, name, running[name], shown, console)
                if has_ended and (ended := tried(console.warn, look_at, account, name, console)):
                    results[name] = ended
                    del running[name]
            if running:
                time.sleep(_ROUND_SECONDS)
    except KeyboardInterrupt:
        state = f"{len(running)} jobs continue, {len(results)} have ended, {len(waiting)} do not exist yet"
        raise KeyboardInterrupt(f"{state}; the same command resumes, and creates none twice") from None
    return results


def _has_ended(account: Account, name: str, service_job: str, shown: dict[str, str], console: Console) -> bool:
    """Print a job's status if it has changed, and return whether it has ended; if AWS does not answer now, it has not."""
    from launcher.jobs.lookup import describe, tried
    from launcher.jobs.outcome import ENDED

    job = tried(console.warn, describe, account, name, service_job)
    if job is None:
        return False
    status = job["TrainingJobStatus"] if job["TrainingJobStatus"] in ENDED else job["SecondaryStatus"]
    if shown.get(name) != status:
        shown[name] = status
        console.say(f"{name}: {status}", "cyan")
    return status in ENDED


def run_here(jobs: Sequence[Member], options: LocalOptions) -> dict[str, Outcome | LaunchError]:
    """Run the jobs on this machine, one after the other, and return how each ended, by name.

    Those that have ended here before are not repeated, except if Ctrl-C or `kill` ended them in an earlier call of this sweep.
    """
    from launcher.jobs.outcome import Outcome
    from launcher.local.leftovers import remove_run
    from launcher.local.runs import local_run, run_names

    console, results = Console(as_json=options.as_json), dict[str, Outcome | LaunchError]()
    for member in jobs:
        name = member.name
        earlier = local_run(name) if name in run_names() else {}
        if earlier and _was_interrupted(earlier) and sweep_of(earlier["Request"]) == sweep_of(member.plan.request):
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


def sweep_of(request: Mapping[str, Any]) -> str | None:
    """Return the name of the sweep to which the request of a job belongs."""
    return next((tag["Value"] for tag in request.get("Tags", ()) if tag["Key"] == TAG), None)


def rows(jobs: Sequence[Member], results: Mapping[str, Outcome | LaunchError]) -> list[dict[str, Any]]:
    """Return the data of each job for programs: name, values, and how it ended, with the metrics that AWS or its lines have."""
    found = []
    for member in jobs:
        ended = results.get(member.name, RefusedError("not created"))
        if isinstance(ended, LaunchError):
            data: dict[str, Any] = {"error": str(ended), "ExitCode": ended.exit_code}
        else:
            data = ended.as_data()
            final = {each["MetricName"]: each["Value"] for each in data.get("FinalMetricDataList", ())}
            data["Metrics"] = {**final, **data["Metrics"]}
        found.append({"TrainingJobName": member.name, "Matrix": dict(member.values)} | data)
    return found
