"""The job's name: taken or free. AWS never forgets one, even of a job that failed years ago."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.preflight.check import Check, Found, Subject
from launcher.spec.names import place_of_name

_FREE = ("ValidationException", "ResourceNotFound", "ResourceNotFoundException")  # SageMaker's is the first


def name_is_free(subject: Subject) -> Iterator[Found]:
    """Whether a job of this name exists. Raises AwsError."""
    name = subject.request["TrainingJobName"]
    path, _ = place_of_name(name, subject.plan.spec)
    try:
        job = subject.ask("sagemaker", "describe_training_job", TrainingJobName=name)
    except AwsError as error:
        if error.code not in _FREE:
            raise
        return
    created = job.get("CreationTime")
    told = f"a job of {created:%Y-%m-%d}" if created else "a job"
    yield (
        path,
        "name-taken",
        f"{name!r} is the name of {told}, {job.get('TrainingJobStatus', 'there')}; names are never free again, so choose another"
        " with --name, or write base_name: for one that is new each time",
    )


CHECK = Check(
    "job name",
    name_is_free,
    {"name-taken": ("error", "A training job of this name exists; AWS never frees a name.")},
)
