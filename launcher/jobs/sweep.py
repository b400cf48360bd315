"""A sweep: one job for each combination of values, created once each, at most some at a time.

Each has a name that follows from the sweep's and its values, and the tag `launch:sweep` with the sweep's name, by which its jobs
can be found. There is no other state: jobs that exist and have the same request are followed, not created again.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import product

from launcher.aws.account import Account
from launcher.console import Console
from launcher.errors import InputError, LaunchError
from launcher.jobs.follow import look_at
from launcher.jobs.lookup import describe, tried
from launcher.jobs.outcome import ENDED, Outcome
from launcher.jobs.submission import submit
from launcher.parsing.layers import Assignment, partition, steps_of
from launcher.planning import Plan
from launcher.spec.job import JobSpec
from launcher.spec.names import MAX_LENGTH, beginning

TAG = "launch:sweep"
_ROUND_SECONDS = 5.0
_PACE_SECONDS = 0.5  # between two descriptions: ListTrainingJobs and its like have low quotas, which a team shares
_DIGEST = 8  # characters
Values = Mapping[str, str]  # of one job, by the key that was typed


def combinations(matrix: Sequence[str]) -> list[Values]:
    """Return the values of each job for texts such as `lr=1e-3,1e-4`, the last key's changing fastest.

    Raises:
        InputError: A text is not KEY=VALUE,..., or names a key or a value twice.
    """
    axes: dict[str, list[str]] = {}
    for text in matrix:
        key, _, listed = partition(text)
        values = [value.strip() for value in listed.split(",")]
        if not key or not all(values):
            raise InputError(f"--matrix {text}: expected KEY=VALUE,VALUE, such as lr=1e-3,1e-4")
        if key in axes or len(set(values)) < len(values):
            raise InputError(f"--matrix {text}: names {'the key' if key in axes else 'a value'} twice; write each once")
        axes[key] = values
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def assignments(values: Values) -> list[Assignment]:
    """Return what `--set` would get: a key of the spec, or one with a dot, is a path; any other is a hyperparameter.

    Raises:
        InputError: Two keys are one setting.
    """
    are_paths = {key: len(steps_of(key)) > 1 or key in JobSpec.model_fields for key in values}
    paths = {key: key if is_path else f"hyperparameters.{key}" for key, is_path in are_paths.items()}
    if len({steps_of(path) or path for path in paths.values()}) < len(paths):
        raise InputError(f"--matrix: {', '.join(paths)} name one setting twice; write each once")
    return [Assignment(f"{paths[key]}={value}", f"--matrix {key}") for key, value in values.items()]


def sweep_name(spec: JobSpec, name: str | None) -> str:
    """Return the sweep's name: `--name`, or the spec's name without a time, so that the same command finds its jobs again."""
    return name or spec.training_job_name or beginning(spec.base_name or "job")


def member_name(sweep: str, values: Values) -> str:
    """Return `digits-lr-1e-3-batch-32`; a digest ends a name that is too long or could be that of other values."""
    words = [sweep, *(text for key, value in values.items() for text in (key.rpartition(".")[2], value))]
    name = re.sub("[^A-Za-z0-9]+", "-", "-".join(words)).strip("-")
    is_plain = all(re.fullmatch(r"[A-Za-z0-9]+([-.][A-Za-z0-9]+)*", value) for value in values.values())
    if is_plain and len(name) <= MAX_LENGTH:
        return name
    digest = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:_DIGEST]
    return f"{name[: MAX_LENGTH - _DIGEST - 1].rstrip('-')}-{digest}"


def run_sweep(plans: Sequence[Plan], account: Account, console: Console, most: int) -> dict[str, Outcome | LaunchError]:
    """Create the jobs that do not exist, at most `most` at a time, and return how each ended, by name.

    After a refusal no more jobs are created, and the existing ones are followed to their end. Ctrl-C leaves them running.
    """
    results: dict[str, Outcome | LaunchError] = {}
    waiting, running = deque(plans), dict[str, str]()  # name -> ID of its service job
    shown: dict[str, str] = {}  # status
    try:
        while waiting or running:
            while waiting and len(running) < most:
                name = str((plan := waiting.popleft()).request["TrainingJobName"])
                try:
                    running[name] = submit(plan, account, console, again=True).service_job
                except LaunchError as error:
                    results[name] = error
                    waiting.clear()
                    console.say(f"{name}: {error}; no more jobs are created", "red")
            for name in list(running):
                time.sleep(_PACE_SECONDS)
                if _has_ended(account, name, running[name], shown, console):
                    results[name] = look_at(account, name, console)
                    del running[name]
            if running:
                time.sleep(_ROUND_SECONDS)
    except KeyboardInterrupt:
        state = f"{len(running)} jobs continue, {len(results)} have ended, {len(waiting)} do not exist yet"
        raise KeyboardInterrupt(f"{state}; the same command resumes, and creates none twice") from None
    return results


def _has_ended(account: Account, name: str, service_job: str, shown: dict[str, str], console: Console) -> bool:
    """Print a job's status if it has changed, and return whether it has ended; if AWS does not answer now, it has not."""
    job = tried(console, describe, account, name, service_job)
    if job is None:
        return False
    status = job["TrainingJobStatus"] if job["TrainingJobStatus"] in ENDED else job["SecondaryStatus"]
    if shown.get(name) != status:
        shown[name] = status
        console.say(f"{name}: {status}", "cyan")
    return status in ENDED
