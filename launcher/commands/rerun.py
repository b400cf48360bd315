"""`launch rerun NAME`: the request of a job that ran, once more, under a new name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import click

import launcher
from launcher.aws.masking import HIDDEN, settings_to_hide
from launcher.commands.completion import job_names
from launcher.commands.effects import carry_out, effect_options, refuse_contradictions
from launcher.commands.options import account_options, json_option, open_account, spec_options
from launcher.console import say
from launcher.importing.from_request import import_request
from launcher.jobs.lookup import describe, tags_of
from launcher.request import text as show

_MADE_UP = re.compile(r"-\d{8}-\d{6}-[0-9a-z]{4}$")  # what launcher.spec.names puts behind a base name


@click.command("rerun", short_help="Submit a job's request again, under a new name.")
@click.argument("name", shell_complete=job_names)
@click.option("--name", "new_name", metavar="NAME", help="The new job's whole name.")
@spec_options
@effect_options
@account_options
@json_option
def command(name: str, new_name: str | None, **options: Any) -> None:
    """Submit the request of the training job NAME again, with what --set changes. Its code is used as it lies in S3.
    Of the job's settings, all of environment and hyperparameters that are named like secrets (token, key, password) are
    shown as ***, unless --show-secrets is given.
    """
    refuse_contradictions(options)
    account = open_account(options["region"], options["profile"])
    job = describe(account, name)
    tags = tags_of(account, job, lambda text: say(f"warning: {text}; the new job has none of them", "yellow"))
    spec = import_request({**job, "Tags": tags or []})
    spec.pop("training_job_name", None)
    spec["base_name"] = _MADE_UP.sub("", name)
    variables = _hide(spec, job)
    known = {**os.environ, **variables}
    parsed = launcher.parse_spec(show.as_yaml(spec), f"<{name}>", sets=options["sets"], environ=known)
    ours = {f"${{{variable}}}" for variable in variables}
    parsed._masked = {place: HIDDEN if text in ours else text for place, text in parsed.masked.items()}
    plan = launcher.plan(parsed, name=new_name, ignore=options["ignore"], strict=options["strict"])
    sys.exit(carry_out(plan, lambda: account, options))


def _hide(spec: dict[str, Any], job: Mapping[str, Any]) -> dict[str, str]:
    """Let the spec name variables in place of what is to be hidden, as a person's would; gives the variables."""
    variables: dict[str, str] = {}
    for number, ((member, name), value) in enumerate(settings_to_hide(job).items()):
        for settings in (spec.get(member.lower()), (spec.get("request") or {}).get(member)):
            if isinstance(settings, dict) and name in settings:
                variable = f"HIDDEN_OF_THE_JOB_{number}"
                settings[name], variables[variable] = f"${{{variable}}}", value
    return variables
