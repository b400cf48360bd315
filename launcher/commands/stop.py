"""`launch stop NAME`: ask SageMaker to stop a job."""

from __future__ import annotations

import json

import click

from launcher.aws.account import AwsError
from launcher.commands.card import Command
from launcher.commands.completion import job_names
from launcher.commands.options import AccountOptions, argument, open_account
from launcher.console import say
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import ENDED


class StopOptions(AccountOptions):
    """The options of `launch stop`."""

    name: str = argument(shell_complete=job_names)


def run(options: StopOptions) -> int:
    """Stop the job; it is no error if it is stopping or has ended already."""
    account, name = open_account(options.region, options.profile), options.name
    status = describe(account, name)["TrainingJobStatus"]
    already = "already " if status == "Stopping" else ""
    if status not in (*ENDED, "Stopping"):
        try:
            account.call("sagemaker", "stop_training_job", TrainingJobName=name)
        except AwsError:
            status = describe(account, name)["TrainingJobStatus"]  # the job may have ended meanwhile
            if status not in (*ENDED, "Stopping"):
                raise
        else:
            status = "Stopping"
    if options.as_json:
        click.echo(json.dumps({"TrainingJobName": name, "TrainingJobStatus": status}))
    elif status == "Stopping":
        say(f"{name}: {already}stopping; its script has 120 s to save. `launch logs {name} --follow` shows the end")
    else:
        say(f"{name}: already {status}")
    return 0


COMMAND = Command(
    options=StopOptions,
    run=run,
    summary="Stop a job and keep what it has saved.",
    help="Stop the training job NAME. Its script gets SIGTERM and 120 s; its checkpoints and model are uploaded.",
    exit_codes=(0, 2, 3),
    example="stop digits-1",
)
