"""`launch stop NAME`: ask SageMaker to stop a job."""

from __future__ import annotations

import json

from launcher.aws.account import AwsError
from launcher.commands.card import Command
from launcher.commands.options import JOB_NAME, AccountOptions
from launcher.console import print_line, say
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import ENDED


class Stop(AccountOptions, Command):
    """Stop a job and keep what it has saved.

    Stop the training job NAME. Its script gets SIGTERM and 120 s; its checkpoints and model are uploaded.
    """

    example = "stop digits-1"

    name: str = JOB_NAME

    def run(self) -> int:
        """Stop the job; it is no error if it is stopping or has ended already."""
        account, name = self.account(), self.name
        status = describe(account, name)["TrainingJobStatus"]
        already = "already " if status == "Stopping" else ""
        if status not in (*ENDED, "Stopping"):
            try:
                account.call("sagemaker", "stop_training_job", TrainingJobName=name)
                status = "Stopping"
            except AwsError:
                status = describe(account, name)["TrainingJobStatus"]  # the job may have ended meanwhile
                if status not in (*ENDED, "Stopping"):
                    raise
        if self.as_json:
            print_line(json.dumps({"TrainingJobName": name, "TrainingJobStatus": status}))
        elif status == "Stopping":
            end = f"`launch logs {name}{account.options} --follow` shows the end"
            say(f"{name}: {already}stopping; its script has 120 s to save. {end}")
        else:
            say(f"{name}: already {status}")
        return 0
