"""EFS channels: whether the file system exists and is available."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.storage import file_system_channels
from launcher.request.view import Entry

_LIKE_S3_FILES = re.compile(r"fs-[0-9a-f]{17,}")
READY = ("available", "updating")


def file_systems_are_ready(subject: Subject) -> Iterator[Finding]:
    """Ask EFS about each file system."""

    def look(path: SpecPath, entry: Entry) -> Iterator[Finding]:
        name = entry.get("FileSystemId")
        try:
            known = subject.ask("efs", "describe_file_systems", FileSystemId=name).get("FileSystems", ())
        except AwsError as error:
            if error.code != "FileSystemNotFound":
                raise
            known = []
        if not known:
            hint = "; name one of `aws efs describe-file-systems`"
            if _is_on_fsx(subject, name):
                hint = "; it is an FSx file system, so write source: FSxLustre"
            elif _LIKE_S3_FILES.fullmatch(name):
                hint += ". If it belongs to S3 Files, whose IDs look the same, read the bucket: training jobs cannot mount it"
            yield path, "efs-missing", f"there is no EFS file system {name} in {subject.account.region}{hint}"
        elif known[0].get("LifeCycleState", "available") not in READY:
            state = known[0]["LifeCycleState"]
            yield path, "efs-not-ready", f"{name} is {state!r}, not available; wait until it is, or name another"

    yield from subject.each(file_system_channels(subject, "EFS"), look)


def _is_on_fsx(subject: Subject, name: str) -> bool:
    try:
        return bool(subject.ask("fsx", "describe_file_systems", FileSystemIds=[name]).get("FileSystems"))
    except AwsError:
        return False  # only a hint


CHECK = Check(
    "EFS",
    "Do the EFS file systems exist, and are they available?",
    file_systems_are_ready,
    {
        "efs-missing": ("error", "There is no such EFS file system in this account and region."),
        "efs-not-ready": ("error", "The EFS file system is being created or deleted."),
    },
)
