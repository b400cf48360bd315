"""Whether the checkpoint path already holds the state of an older job.

SageMaker would restore it, and the script would resume from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from entrypoints import contract
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.s3.listing import Listing, listing
from launcher.preflight.uses import as_folder, place_of
from launcher.s3.uri import S3Location


def older_state(subject: Subject) -> Listing | None:
    """Return what is stored at the checkpoint path; None if the job keeps no checkpoints. Raises AwsError."""
    place = place_of(subject.draft.get("CheckpointConfig.S3Uri"))
    return listing(subject, S3Location(place.bucket, as_folder(place.key))) if place else None


def _ask(subject: Subject, path: SpecPath, _: None) -> Iterator[Finding]:
    found = older_state(subject)
    if found is None or not found.count:
        return
    local = subject.draft.get("CheckpointConfig.LocalPath") or f"{contract.BASE_DIR}/{contract.CHECKPOINT_DIR}"
    newest = f", the newest of {found.newest:%Y-%m-%d %H:%M} UTC" if found.newest else ""
    message = (
        f"{found.place} holds an older job's state: {found.described()}{newest}; SageMaker copies it to {local} before the start,"
        f" and a script that looks there resumes from it; if you do not want that, use a new path, such as"
        f" {found.place}{subject.draft.request['TrainingJobName']}/"
    )
    yield path, "checkpoints-exist", message


CHECK = Check(
    "checkpoints",
    "Is the checkpoint path free of an older job's state?",
    _ask,
    lambda _: [(("checkpoint_config", "s3_uri"), None)],
    warnings={
        "checkpoints-exist": "The checkpoint path holds an older job's state, from which the script would resume.",
    },
)
