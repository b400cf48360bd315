"""Submit the job and follow it to its end: what a command does with a plan if no flag asks for something else."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

import launcher
from launcher.commands.effects.check import AskingOptions, ask, show
from launcher.commands.effects.effect import Effect, GetAccount, say_code
from launcher.commands.options import flag, option
from launcher.console import Console
from launcher.errors import LaunchError, RefusedError

if TYPE_CHECKING:
    from launcher.aws.account import Account


class SubmitOptions(AskingOptions):
    """The options of a submission."""

    no_check: bool = flag(help="Submit without checking first.")
    follow: bool | None = option(
        "--follow/--no-follow", help="Show the job's log until its end; the default on a terminal."
    )
    wait: bool = flag(help="Wait for the job's end without showing its log.")


def _submit(plan: launcher.Plan, account: GetAccount, options: SubmitOptions) -> int:
    from launcher.commands.effects.agreement import (
        require_agreement,  # with the prices, 10 ms that a dry run need not wait
    )

    console, opened, report = Console(as_json=options.as_json), account(), None
    if not options.no_check:
        report = ask(plan, opened, console, options)
        show(report, strict=options.strict)
    say_code(plan)
    require_agreement(plan, opened.region, console, report, yes=options.yes)
    job = launcher.submit(plan, yes=True, account=opened, console=console)
    try:
        return _after_creation(job, opened, console, options)
    except BaseException as error:  # the job exists, whatever happens here
        with suppress(OSError):
            if not isinstance(error, LaunchError):
                console.say(f"{job.name} exists and continues; `launch logs {job.name} --follow` follows it", "yellow")
        raise


def _after_creation(job: launcher.Submitted, account: Account, console: Console, options: SubmitOptions) -> int:
    by_default = sys.stdout.isatty() and not options.as_json and not options.wait
    follow = by_default if options.follow is None else options.follow
    if job.was_found:
        console.say(f"found     {job.name} in {job.region}: another submission of the same request created it", "green")
    else:
        console.say(f"created   {job.name} in {job.region}", "green")
    if follow or options.wait:
        from launcher.aws.account import AwsError
        from launcher.jobs.follow import View

        try:
            outcome = launcher.follow(job, account=account, console=console, view=View(logs=bool(follow)))
        except AwsError as error:  # the caller may create the job, but not describe it
            other = f"a user with the permission can run `launch logs {job.name} --follow`"
            if options.wait or options.follow:
                message = f"{job.name} has been created and continues, but cannot be followed: {error}; {other}"
                raise RefusedError(message) from None
            console.warn(f"the job cannot be followed: {error}; {other}")
        else:
            if options.as_json:
                click.echo(json.dumps(outcome.as_data(), indent=2))
            return outcome.exit_code
    else:
        console.say(f"follow    launch logs {job.name} --follow")
    if options.as_json:
        created = {"TrainingJobName": job.name, "TrainingJobArn": job.arn, "Region": job.region}
        click.echo(json.dumps({**created, "Created": not job.was_found}, indent=2))
    else:
        click.echo(job.name)
    return 0


EFFECT = Effect(
    options=SubmitOptions,
    carry_out=_submit,
    flag=None,
    example="job.yaml",
    summary="submit the job, and follow it on a terminal",
    contradictions=(("full", "no_check"),),
)
