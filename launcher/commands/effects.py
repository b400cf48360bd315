"""What can be done with a plan and an account: show it, check it, submit it and follow it. Commands that make plans share it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

import launcher
from launcher.console import Console, say, tell
from launcher.errors import AccountError, LaunchError, RefusedError, dotted
from launcher.request import text as show

if TYPE_CHECKING:
    from launcher.aws.account import Account

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--dry-run", is_flag=True, help="Print the CreateTrainingJob request, and do nothing."),
    click.option("--check", is_flag=True, help="Ask AWS whether the job can run, change nothing, and do not submit."),
    click.option("--no-check", is_flag=True, help="Submit without asking first."),
    click.option("--full", is_flag=True, help="List every prefix to its end when asking, however long that takes."),
    click.option(
        "--follow/--no-follow", default=None, help="Show the job's log until its end; the default on a terminal."
    ),
    click.option("--wait", is_flag=True, help="Wait for the job's end without its log."),
    click.option(
        "--show-secrets", is_flag=True, help="Show the values of ${NAME}, and what else is hidden of settings."
    ),
    click.option("--yes", is_flag=True, help="Agree to every question, whatever the job may cost."),
)


def effect_options(function: _Function) -> _Function:
    """The options that say what is to be done with a plan."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def refuse_contradictions(options: dict[str, Any]) -> None:
    """Options that ask for two things at once. Raises click.UsageError."""
    effects = [key for key in ("dry_run", "local", "check") if options.get(key)]
    if len(effects) > 1:
        first, second = (_dashed(key) for key in effects[:2])
        raise click.UsageError(f"{first} and {second} are two things; give one of them")
    of_submission = [key for key in ("wait", "follow", "no_check") if options[key]]
    if effects and of_submission:
        raise click.UsageError(f"{_dashed(effects[0])} submits nothing; leave out {_dashed(of_submission[0])}")
    if options["full"] and (options["no_check"] or effects not in ([], ["check"])):
        raise click.UsageError("--full is about asking AWS; it goes with --check, or with a submission that asks first")


def _dashed(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def carry_out(plan: launcher.Plan, account: Callable[[], Account], options: dict[str, Any]) -> int:
    """Do with the plan what `options`, those of `effect_options` and `spec_options`, say; returns the exit code.

    `account` is called only where AWS is asked.
    """
    for warning in plan.warnings:
        tell(warning)
    as_json = options["as_json"]
    if options["dry_run"]:
        shown = plan.request if options["show_secrets"] else plan.masked_request()
        sys.stdout.write(show.as_json(shown) if as_json else show.as_yaml(shown))
        if plan.masked and not options["show_secrets"]:
            names = ", ".join(map(dotted, plan.masked))
            say(f"warning: {names}: masked, so this is not the request to send; --show-secrets prints that", "yellow")
        _say_code(plan)
        return 0
    from launcher.commands.agreement import require_agreement

    console, asked, report = Console(as_json=as_json), account(), None
    if not options["no_check"]:
        report = _preflight(plan, asked, console, options)
        if options["check"]:
            return 0
    _say_code(plan)
    require_agreement(plan, asked.region, console, report, yes=options["yes"])
    return _submit(plan, asked, console, options)


def _say_code(plan: launcher.Plan) -> None:
    if plan.code is not None and (described := plan.code.described()) is not None:
        say(f"code      {described}")


def _submit(plan: launcher.Plan, account: Account, console: Console, options: dict[str, Any]) -> int:
    job = launcher.submit(plan, yes=True, account=account, console=console)
    try:
        return _after_creation(job, account, console, options)
    except BaseException as error:  # the job exists, whatever happens here
        with suppress(OSError):
            if not isinstance(error, LaunchError):
                console.say(f"{job.name} exists and continues; `launch logs {job.name} --follow` follows it", "yellow")
        raise


def _after_creation(job: launcher.Submitted, account: Account, console: Console, options: dict[str, Any]) -> int:
    as_json = options["as_json"]
    by_default = sys.stdout.isatty() and not as_json and not options["wait"]
    follow = by_default if options["follow"] is None else options["follow"]
    if job.was_found:
        console.say(f"found     {job.name} in {job.region}: another submission of the same request created it", "green")
    else:
        console.say(f"created   {job.name} in {job.region}", "green")
    if follow or options["wait"]:
        from launcher.aws.account import AwsError
        from launcher.jobs.follow import View

        try:
            outcome = launcher.follow(job, account=account, console=console, view=View(logs=bool(follow)))
        except AwsError as error:  # its creator may not ask for it
            come_back = f"who may ask for it, can with `launch logs {job.name} --follow`"
            if options["wait"] or options["follow"]:
                message = f"{job.name} has been created and continues, but cannot be followed: {error}; {come_back}"
                raise RefusedError(message) from None
            console.warn(f"the job cannot be followed: {error}; {come_back}")
        else:
            if as_json:
                click.echo(json.dumps(outcome.as_data(), indent=2))
            return outcome.exit_code
    else:
        console.say(f"follow    launch logs {job.name} --follow")
    if as_json:
        said = {"TrainingJobName": job.name, "TrainingJobArn": job.arn, "Region": job.region}
        click.echo(json.dumps({**said, "Created": not job.was_found}, indent=2))
    else:
        click.echo(job.name)
    return 0


def _preflight(plan: launcher.Plan, account: Account, console: Console, options: dict[str, Any]) -> launcher.Report:
    """Ask AWS, and print what it answered. Raises AccountError if the job cannot run."""
    with console.progress("asking AWS whether the job can run", counted=False):
        report = launcher.check(plan, account=account, console=console, full=options["full"], ignore=options["ignore"])
    stops = any(each.severity == "error" or options["strict"] for each in report.problems)
    if options["as_json"] and options["check"]:
        click.echo(json.dumps(report.as_data(), indent=2))
        if stops:
            raise click.exceptions.Exit(AccountError.exit_code)
        return report
    for line in report.lines():
        say(line)
    if stops:
        raise AccountError(report.problems)
    for problem in report.problems:
        tell(problem)
    return report
