"""`launch diff SPEC NAME`: the differences between a spec and an earlier job."""

from __future__ import annotations

import json

import click

import launcher
from launcher.commands.card import Command
from launcher.commands.completion import job_names
from launcher.commands.options import SpecOptions, argument, open_account, show_secrets
from launcher.console import COLOUR, say
from launcher.errors import dotted
from launcher.jobs.comparing import differences
from launcher.jobs.lookup import describe, tags_of


class DiffOptions(SpecOptions):
    """The options of `launch diff`."""

    spec: str = argument(type=click.Path(dir_okay=False, allow_dash=True))
    name: str = argument(shell_complete=job_names)
    show_secrets: bool = show_secrets()


def run(options: DiffOptions) -> int:
    """Print each member that differs, with both values; the exit code is 0 also if there are differences."""
    plan = launcher.plan(launcher.load(options.spec, sets=options.sets), ignore=options.ignore, strict=options.strict)
    account, name = open_account(plan.spec.region, plan.spec.profile), options.name
    job = describe(account, name)
    tags = tags_of(account, job, lambda text: say(f"warning: {text}; they are not compared", "yellow"))
    found = differences(plan, job, tags, show_secrets=options.show_secrets)
    if options.as_json:
        click.echo(json.dumps([each.as_data() for each in found], indent=2))
        return 0
    for each in found:
        click.echo(f"{dotted(each.path)}:")
        if each.job is not None:
            click.secho(f"  - {each.job}", fg="red", color=COLOUR)
        if each.plan is not None:
            click.secho(f"  + {each.plan}", fg="green", color=COLOUR)
    count = f"{len(found)} difference{'s' * (len(found) != 1)}" if found else "no differences"
    say(f"{count} between {options.spec} and {name}")
    return 0


COMMAND = Command(
    options=DiffOptions,
    run=run,
    summary="Show the differences between a spec and an earlier job.",
    help="Compare the request of SPEC with that of the training job NAME, member by member: `-` is the job's value, `+` the"
    " spec's. The job's environment and hyperparameters named like secrets (token, key, password) are shown as ***, unless you"
    " pass --show-secrets.",
    exit_codes=(0, 2, 3),
    example="diff job.yaml digits-1",
)
