"""`launch rerun NAME`: the request of a job that ran, once more, under a new name."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

import launcher
from launcher import show
from launcher.commands.effects import carry_out, effect_options, refuse_contradictions
from launcher.commands.options import account_options, json_option, open_account, spec_options
from launcher.importing import import_request
from launcher.jobs.lookup import describe

_MADE_UP = re.compile(r"-\d{8}-\d{6}-[0-9a-z]{4}$")  # what launcher.names puts behind a base name


@click.command("rerun", short_help="Submit a job's request again, under a new name.")
@click.argument("name")
@click.option("--name", "new_name", metavar="NAME", help="The new job's whole name.")
@spec_options
@effect_options
@account_options
@json_option
def command(name: str, new_name: str | None, **options: Any) -> None:
    """Submit the request of the training job NAME again, with what --set changes. Its code is used as it lies in S3."""
    refuse_contradictions(options)
    account = open_account(options["region"], options["profile"])
    job = describe(account, name)
    tags = account.call("sagemaker", "list_tags", ResourceArn=job["TrainingJobArn"]).get("Tags", [])
    spec = import_request({**job, "Tags": [tag for tag in tags if not tag["Key"].startswith("aws:")]})
    spec.pop("training_job_name", None)
    spec["base_name"] = _MADE_UP.sub("", name)
    text = show.as_yaml(spec)
    parsed = launcher.parse_spec(text, f"<{name}>", sets=options["sets"])
    plan = launcher.plan(parsed, name=new_name, ignore=options["ignore"], strict=options["strict"])
    sys.exit(carry_out(plan, lambda: account, options))
