"""The account, region and name that the job gets. AWS keeps the names of all training jobs for ever."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject
from launcher.spec.names import place_of_name


def _account(subject: Subject) -> list[Finding]:
    subject.note((), f"account {subject.own_account}, region {subject.account.region}")
    return []


ACCOUNT = Check("account", _account)


def _name(subject: Subject) -> Iterator[Finding]:
    name = subject.draft.request["TrainingJobName"]
    job = subject.find("sagemaker", "describe_training_job", TrainingJobName=name)
    if job is not None:
        path, _ = place_of_name(name, subject.draft.spec)
        created = job.get("CreationTime")
        since = f" of {created:%Y-%m-%d}" if created else ""
        message = (
            f"{name!r} is taken by a job{since} ({job.get('TrainingJobStatus', 'exists')}), and AWS never frees a name; choose"
            " another with --name, or write base_name: to get a new name each time"
        )
        yield path, "name-taken", message


NAME = Check("job name", _name)
