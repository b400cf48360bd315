"""`launch stop NAME`: ask SageMaker to stop a job."""

from __future__ import annotations

from launcher.aws.account import AwsError
from launcher.commands import options
from launcher.console import say
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import ENDED


@options.command("stop", "stop digits-1")
@options.job_argument
@options.account_options
@options.json_option
def stop(name: str, where: options.AccountOptions, as_json: bool) -> None:
    """Stop a job and keep what it has saved.

    The script of the training job NAME gets SIGTERM and 120 s; its checkpoints and model are uploaded. It is no error if the job
    is stopping or has ended already.
    """
    account = where.open()
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
    if as_json:
        options.print_json({"TrainingJobName": name, "TrainingJobStatus": status})
    elif status == "Stopping":
        end = f"`launch logs {name}{account.options} --follow` shows the end"
        say(f"{name}: {already}stopping; its script has 120 s to save. {end}")
    else:
        say(f"{name}: already {status}")
