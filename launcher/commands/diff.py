"""`launch diff SPEC NAME`: the differences between a spec and an earlier job."""

from __future__ import annotations

import json

import click

from launcher.commands.card import Command
from launcher.commands.options import JOB_NAME, SHOW_SECRETS, SPEC, SpecOptions, open_account
from launcher.console import COLOUR, say
from launcher.errors import dotted
from launcher.jobs.comparing import differences
from launcher.jobs.lookup import describe, tags_of


class Diff(SpecOptions, Command):
    """Show the differences between a spec and an earlier job.

    Compare the request of SPEC with that of the training job NAME, member by member: `-` is the job's value, `+` the spec's.
    The job's environment and hyperparameters named like secrets (token, key, password) are shown as ***, unless you pass
    --show-secrets.
    """

    example = "diff job.yaml digits-1"

    spec: str = SPEC
    name: str = JOB_NAME
    show_secrets: bool = SHOW_SECRETS

    def run(self) -> int:
        """Print each member that differs, with both values; the exit code is 0 also if there are differences."""
        plan = self.plan(self.spec)
        account, name = open_account(plan.spec.region, plan.spec.profile), self.name
        job = describe(account, name)
        tags = tags_of(account, job, lambda text: say(f"warning: {text}; they are not compared", "yellow"))
        found = differences(plan, job, tags, show_secrets=self.show_secrets)
        if self.as_json:
            click.echo(json.dumps([each.as_data() for each in found], indent=2))
            return 0
        for each in found:
            click.echo(f"{dotted(each.path)}:")
            if each.job is not None:
                click.secho(f"  - {each.job}", fg="red", color=COLOUR)
            if each.plan is not None:
                click.secho(f"  + {each.plan}", fg="green", color=COLOUR)
        count = f"{len(found)} difference{'s' * (len(found) != 1)}" if found else "no differences"
        say(f"{count} between {self.spec} and {name}")
        return 0
