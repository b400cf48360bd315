"""`launch status NAME`: how a job stands, or how it ended."""

from __future__ import annotations

import json

import click

from launcher.commands.completion import job_names
from launcher.commands.options import account_options, json_option, open_account
from launcher.console import Console
from launcher.jobs.ending import report
from launcher.jobs.logs.lines import last_lines
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import Outcome
from launcher.jobs.statuses import Statuses


@click.command("status", short_help="Show how a job stands, or how it ended.")
@click.argument("name", shell_complete=job_names)
@account_options
@json_option
def command(name: str, region: str | None, profile: str | None, as_json: bool) -> None:
    """Show the training job NAME: what it has been doing for how long, and when it has ended, its cost, outputs and failure."""
    account = open_account(region, profile)
    description = describe(account, name)
    lines = last_lines(account, name) if description["TrainingJobStatus"] == "Failed" else ()
    outcome = Outcome(description, last_lines=tuple(map(account.veil.over, lines)))
    if as_json:
        click.echo(json.dumps(outcome.as_data(), indent=2))
        return
    console = Console()
    Statuses(console.say).tell(description)
    report(outcome, console, account.region)
