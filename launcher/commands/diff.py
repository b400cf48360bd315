"""`launch diff SPEC NAME`: what would differ from a job that ran."""

from __future__ import annotations

import json
from typing import Any

import click

import launcher
from launcher.commands.completion import job_names
from launcher.commands.options import json_option, open_account, spec_options
from launcher.console import COLOUR, say
from launcher.errors import dotted


@click.command("diff", short_help="Show what of a spec differs from a job that ran.")
@click.argument("spec", type=click.Path(dir_okay=False, allow_dash=True))
@click.argument("name", shell_complete=job_names)
@spec_options
@click.option("--show-secrets", is_flag=True, help="Show the values of ${NAME}, and what else is hidden of settings.")
@json_option
def command(spec: str, name: str, as_json: bool, show_secrets: bool, sets: tuple[str, ...], **reading: Any) -> None:
    """Compare the request of SPEC with that of the training job NAME, member by member; `-` ran, `+` would run.
    Of the job's settings, all of environment and hyperparameters that are named like secrets (token, key, password) are
    shown as ***, unless --show-secrets is given.
    """
    from launcher.jobs.comparing import differences
    from launcher.jobs.lookup import describe, tags_of

    plan = launcher.plan(launcher.load(spec, sets=sets), **reading)
    account = open_account(plan.spec.region, plan.spec.profile)
    job = describe(account, name)
    tags = tags_of(account, job, lambda text: say(f"warning: {text}; they are not compared", "yellow"))
    found = differences(plan, job, tags, show_secrets=show_secrets)
    if as_json:
        click.echo(json.dumps([each.as_data() for each in found], indent=2))
        return
    for each in found:
        click.echo(f"{dotted(each.path)}:")
        if each.job is not None:
            click.secho(f"  - {each.job}", fg="red", color=COLOUR)
        if each.plan is not None:
            click.secho(f"  + {each.plan}", fg="green", color=COLOUR)
    say(
        f"{len(found)} difference{'s' * (len(found) != 1)} from {name}" if found else f"{spec} asks for what {name} had"
    )
