"""The functions of `import launcher`. The commands call the same ones.

No function asks a question. Progress and warnings are printed to stderr, and a job's own lines to stdout. Unless `account` is
passed, it is the account of the spec's `region` and `profile` and of boto3's usual settings.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.code.archive import CodeArchive, read_code
from launcher.code.file_rules import CodeError
from launcher.code.git import git_tags
from launcher.code.script import script_of
from launcher.console import Console
from launcher.errors import RefusedError, SpecError, limit_problems
from launcher.parsing.parser import load, parse_spec
from launcher.parsing.team_files import read_team
from launcher.planning import Plan, make_plan
from launcher.reference.problem_codes import unknown_codes
from launcher.spec.job import JobSpec
from launcher.spec.names import job_name

if TYPE_CHECKING:
    from launcher.account.results import Report
    from launcher.aws.session import Account
    from launcher.jobs.follow import View
    from launcher.jobs.outcome import Outcome
    from launcher.jobs.submission import Submitted
    from launcher.local.workspace import LocalOptions


def plan(
    spec: JobSpec | Mapping[str, Any] | str | PathLike[str],
    *,
    name: str | None = None,
    set: Mapping[str, Any] | None = None,
    ignore: tuple[str, ...] = (),
    strict: bool = False,
) -> Plan:
    """Plan a job. Needs no AWS account, region or network.

    Args:
        spec: The path of a spec, its keys and values as a mapping (relative paths then start at the working directory), or
            what `load` returned.
        name: The job's whole name. By default `training_job_name` is used as it is, and `base_name` gets the time and four
            random characters.
        set: Keys to change, as with `--set`: {"hyperparameters.epochs": 3}. Not allowed if `spec` is a JobSpec.
        ignore: Codes of warnings to leave out.
        strict: Whether warnings are errors.

    Raises:
        SpecError: The spec is wrong; `problems` has everything that was found.
        InputError: The spec cannot be read.
    """
    if isinstance(spec, Mapping):
        spec = parse_spec(spec, "<spec>", values=set, environ=os.environ)
    elif not isinstance(spec, JobSpec):
        spec = load(str(spec), values=set)
    elif set:
        raise TypeError("set does not change a spec that is loaded already; pass it to load as sets=['path=value']")
    if spec._team is None:  # made without the team's files, which hold even so
        at = spec.locate(())
        spec = spec.model_copy()
        spec._team = read_team(at.file if at else "<spec>", os.environ)[1]
    code: CodeArchive | CodeError | None = None
    if spec.code is not None:
        folder = spec.code.directory
        try:
            directory = None if folder is None else Path(spec.folder_of(("code", "directory")), folder)
            beside = Path(spec.folder_of(("code", "dependencies")))
            dependencies = [beside / each for each in spec.code.dependencies or ()]
            include, exclude = spec.code.include or (), spec.code.exclude or ()
            script, texts = spec.code.entry_point, [script_of(spec.code), spec.code.requirements]
            code = read_code(directory, include, exclude, dependencies, entry_point=script, texts=texts)
            if directory is not None and spec.code.git:
                code = replace(code, tags=git_tags(directory))
        except CodeError as error:
            code = error  # one problem among those of the spec
    now = datetime.now(timezone.utc)
    unique = "".join(secrets.choice("0123456789abcdefghijklmnopqrstuvwxyz") for _ in range(4))
    wanted = job_name(spec, now, unique) if name is None else name
    problems = unknown_codes(spec, ignore)
    made = make_plan(spec, job_name=wanted, code=code, ignore=ignore, problems=problems, today=now.date())
    if strict and made.warnings:
        raise SpecError(limit_problems(list(made.warnings)))
    return made


def check(
    plan: Plan,
    *,
    account: Account | None = None,
    console: Console | None = None,
    full: bool = False,
    ignore: tuple[str, ...] = (),
) -> Report:
    """Ask AWS whether the job can run, and change nothing.

    Args:
        plan: What `plan` returned.
        account: The account to ask.
        console: Where progress is reported if `full` takes long.
        full: Whether prefixes are listed to their end, however long that takes.
        ignore: Codes of problems to leave out.

    Returns:
        All problems found; the job can run if `errors` is empty.

    Raises:
        RefusedError: AWS could not be asked: no credentials, no region or no connection.
    """
    from launcher.account.results import DEADLINE, check_account

    deadline = None if full else DEADLINE
    return check_account(plan, _opened(plan, account), ignore=ignore, deadline=deadline, console=console or Console())


def upload_code(plan: Plan, *, account: Account | None = None, console: Console | None = None) -> str | None:
    """Upload the code to its place in the request, unless it is there already. The request needs nothing else.

    Returns:
        The code's place in S3; None if the job has no code of its own.

    Raises:
        RefusedError: The code could not be uploaded. No part of it remains.
    """
    from launcher.aws.code_upload import upload_code

    upload_code(plan, _opened(plan, account), console or Console())
    return plan.code_uri


def submit(
    plan: Plan, *, yes: bool = False, account: Account | None = None, console: Console | None = None
) -> Submitted:
    """Upload the code and create the job: exactly `plan.request`, and only once, whatever happens to the connection.

    Args:
        plan: What `plan` returned.
        yes: Whether the job may cost more than $100, or have an unknown price, if no `max_cost` is set. It lifts no `max_cost` of
            the spec, and no LAUNCH_MAX_COST.
        account: The account to create it in.
        console: Where progress and warnings are printed.

    Raises:
        AccountError: AWS refuses the request; `problems` names the keys to change.
        RefusedError: The job may cost more than `max_cost`, its price is unknown, or something else outside the spec
            prevents it. The message states whether the job exists.
    """
    from launcher.cost.limit import refuse_above_limit
    from launcher.jobs.submission import submit

    account = _opened(plan, account)
    refuse_above_limit(plan, account.region, agree="submit(plan, yes=True)", agreed=yes)
    return submit(plan, account, console or Console())


def run_local(
    plan: Plan,
    data: str | PathLike[str] | None = None,
    options: LocalOptions | None = None,
    *,
    raise_on_failure: bool = False,
) -> Outcome:
    """Run the job on this machine, as `launch --local` does, and follow it to its end.

    Args:
        plan: What `plan` returned.
        data: The folder with the data: DATA/s3/<bucket>/... and, for file systems, DATA/efs/<fs-id>/ and so on.
        options: The other options of the command, such as LocalOptions(channels=("train=./images",), sample=10).
        raise_on_failure: Whether a training that failed or was stopped is an exception.

    Returns:
        How the job ended, as from `follow`: `status`, `reason`, `metrics`, `model`, `exit_code`, and the run's `folder`.

    Raises:
        RefusedError: The run cannot start.
        TrainingFailedError, StoppedError: The training failed or was stopped, with `raise_on_failure`.
    """
    _require_plan(plan)
    if sys.platform == "win32":
        raise RefusedError("local runs need Linux or macOS; run launch in the Windows Subsystem for Linux (WSL)")
    from launcher.local.run import run_local
    from launcher.local.workspace import LocalOptions

    options = options or LocalOptions()
    outcome = run_local(plan, options if data is None else replace(options, data=Path(data)))
    return outcome.checked() if raise_on_failure else outcome


def status(job: Submitted | str, *, account: Account | None = None, console: Console | None = None) -> Outcome:
    """Return what a job does now, or how it ended.

    Args:
        job: What `submit` returned, or the name of a job.
        account: The account of the job; by default that of `submit`.
        console: Where warnings are printed.

    Returns:
        The job's state: `status`, `metrics` and `waits` of its last lines, `cost` so far, `console_url` and AWS's `description`.

    Raises:
        RefusedError: There is no such job, or you are not allowed to ask AWS.
    """
    from launcher.jobs.follow import look_at

    name, account = _job_in(job, account)
    return look_at(account, name, console or Console())


def follow(
    job: Submitted | str,
    *,
    account: Account | None = None,
    console: Console | None = None,
    view: View | None = None,
    raise_on_failure: bool = False,
) -> Outcome:
    """Show a job's log and status until it has ended. Ctrl-C stops showing them and leaves the job running.

    Args:
        job: What `submit` returned, or the name of a job.
        account: The account of the job; by default that of `submit`.
        console: Where the lines are printed.
        view: Which of the job's lines are shown.
        raise_on_failure: Whether a training that failed or was stopped is an exception.

    Returns:
        How the job ended: `status`, `reason`, `metrics`, `model`, `exit_code` and AWS's whole `description`.

    Raises:
        RefusedError: There is no such job, or you are not allowed to ask AWS.
        TrainingFailedError, StoppedError: The training failed or was stopped, with `raise_on_failure`.
    """
    from launcher.jobs.follow import follow

    name, account = _job_in(job, account)
    service_job = "" if isinstance(job, str) else job.service_job
    outcome = follow(account, name, console or Console(), view, service_job=service_job)
    return outcome.checked() if raise_on_failure else outcome


def _job_in(job: Submitted | str, account: Account | None) -> tuple[str, Account]:
    """Return a job's name and its account."""
    from launcher.aws.session import Account

    if isinstance(job, str):
        return job, account or Account()
    return job.name, account or Account(region=job.region, profile=job.profile)


def _require_plan(plan: Plan) -> None:
    if not isinstance(plan, Plan):
        raise TypeError(f"expected a plan, not {type(plan).__name__}: pass what launcher.plan returns for it")


def _opened(plan: Plan, account: Account | None) -> Account:
    """Return the account, which from now on masks the plan's secrets in its messages. Raises SpecError if the team forbids it."""
    from launcher.aws.session import Account
    from launcher.jobs.submission import mask_settings, require_allowed

    _require_plan(plan)
    account = account or Account(region=plan.spec.region, profile=plan.spec.profile)
    mask_settings(plan, account.mask)
    require_allowed(plan, account)
    return account
