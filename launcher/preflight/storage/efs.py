"""EFS channels: whether the file system is there, and can be mounted where the job's machines will be.

A machine mounts EFS by the mount target of its own availability zone, which lets it in by its security groups on port 2049.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.asking import each
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.storage import file_system_channels
from launcher.request.view import Entry

_LIKE_S3_FILES = re.compile(r"fs-[0-9a-f]{17,}")
READY = ("available", "updating")


def file_systems_are_ready(subject: Subject) -> Iterator[Found]:
    """Whether each file system exists and is available."""

    def look(path: SpecPath, entry: Entry) -> Iterator[Found]:
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
                hint = "; it is on FSx: write source: FSxLustre"
            elif _LIKE_S3_FILES.fullmatch(name):
                hint += ". It may be of S3 Files, whose ids look the same: training jobs cannot mount those, so read the bucket"
            yield path, "efs-missing", f"{name} is no EFS file system in {subject.account.region}{hint}"
        elif known[0].get("LifeCycleState", "available") not in READY:
            state = known[0]["LifeCycleState"]
            yield path, "efs-not-ready", f"{name} is {state!r}, not available; wait until it is, or name another"

    yield from each(subject, file_system_channels(subject, "EFS"), look)


def _is_on_fsx(subject: Subject, name: str) -> bool:
    try:
        return bool(subject.ask("fsx", "describe_file_systems", FileSystemIds=[name]).get("FileSystems"))
    except AwsError:
        return False  # a hint only


CHECK = Check(
    "EFS",
    file_systems_are_ready,
    {
        "efs-missing": ("error", "There is no such EFS file system in this account and region."),
        "efs-not-ready": ("error", "The EFS file system is being made or deleted."),
    },
)
