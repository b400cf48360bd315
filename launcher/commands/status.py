"""`launch status NAME`: what a job is doing, or how it ended."""

from __future__ import annotations

import json

import click

from launcher.commands.card import Command
from launcher.commands.completion import job_names
from launcher.commands.options import AccountOptions, argument, open_account
from launcher.console import Console
from launcher.jobs.ending import report
from launcher.jobs.logs.lines import last_lines
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import Outcome
from launcher.jobs.statuses import Statuses


class StatusOptions(AccountOptions):
    """The options of `launch status`."""

    name: str = argument(shell_complete=job_names)


def run(options: StatusOptions) -> int:
    """Show the job; the exit code does not depend on how it ended."""
    account = open_account(options.region, options.profile)
    description = describe(account, options.name)
    lines = last_lines(account, options.name) if description["TrainingJobStatus"] == "Failed" else ()
    outcome = Outcome(description, last_lines=tuple(map(account.mask.apply, lines)))
    if options.as_json:
        click.echo(json.dumps(outcome.as_data(), indent=2))
    else:
        console = Console()
        Statuses(console.say).show(description)
        report(outcome, console, account.region)
    return 0


COMMAND = Command(
    options=StatusOptions,
    run=run,
    summary="Show what a job is doing, or how it ended.",
    help="Show the statuses of the training job NAME and how long each took; after its end also its cost, outputs and failure.",
    exit_codes=(0, 2, 3),
    example="status digits-1",
)
