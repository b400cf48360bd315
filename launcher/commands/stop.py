"""`launch stop NAME`: ask SageMaker to stop a job."""

from __future__ import annotations

import json

import click

from launcher.aws.account import AwsError
from launcher.commands.completion import job_names
from launcher.commands.options import account_options, json_option, open_account
from launcher.console import say
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import ENDED


@click.command("stop", short_help="Stop a job; what it has saved is kept.")
@click.argument("name", shell_complete=job_names)
@account_options
@json_option
def command(name: str, region: str | None, profile: str | None, as_json: bool) -> None:
    """Stop the training job NAME. Its script gets SIGTERM and 120 s; its checkpoints and model are uploaded."""
    account = open_account(region, profile)
    status = describe(account, name)["TrainingJobStatus"]
    already = "already " if status == "Stopping" else ""
    if status not in (*ENDED, "Stopping"):
        try:
            account.call("sagemaker", "stop_training_job", TrainingJobName=name)
        except AwsError:
            status = describe(account, name)["TrainingJobStatus"]  # it may have ended meanwhile, which is as good
            if status not in (*ENDED, "Stopping"):
                raise
        else:
            status = "Stopping"
    if as_json:
        click.echo(json.dumps({"TrainingJobName": name, "TrainingJobStatus": status}))
    elif status == "Stopping":
        say(f"{name}: {already}stopping; its script has 120 s to save. `launch logs {name} --follow` shows the end")
    else:
        say(f"{name}: {status} already")
