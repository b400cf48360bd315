"""Whether the job's name is free. AWS keeps the names of all training jobs for ever."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.preflight.check import Check, Finding, Subject
from launcher.spec.names import place_of_name

_FREE = ("ValidationException", "ResourceNotFound", "ResourceNotFoundException")  # SageMaker sends the first


def name_is_free(subject: Subject) -> Iterator[Finding]:
    """Look for a job of this name. Raises AwsError."""
    name = subject.request["TrainingJobName"]
    path, _ = place_of_name(name, subject.draft.spec)
    try:
        job = subject.ask("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if error.code not in _FREE:
            raise
        return
    created = job.get("CreationTime")
    since = f" of {created:%Y-%m-%d}" if created else ""
    yield (
        path,
        "name-taken",
        f"{name!r} is taken by a job{since} ({job.get('TrainingJobStatus', 'exists')}), and AWS never frees a name; choose"
        " another with --name, or write base_name: to get a new name each time",
    )


CHECK = Check(
    "job name",
    "Is the job's name free?",
    name_is_free,
    {"name-taken": ("error", "A training job of this name exists; AWS never frees a name.")},
)
