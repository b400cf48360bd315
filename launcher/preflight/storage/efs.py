"""EFS channels: whether the file system exists and is available."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.storage import channels_of
from launcher.request.view import Entry

_LIKE_S3_FILES = re.compile(r"fs-[0-9a-f]{17,}")
READY = ("available", "updating")


def _ask(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name = entry.get("FileSystemId")
    known = (subject.find("efs", "describe_file_systems", FileSystemId=name) or {}).get("FileSystems")
    if not known:
        hint = "; name one of `aws efs describe-file-systems`"
        if subject.try_to_ask("fsx", "describe_file_systems", FileSystemIds=[name]).get("FileSystems"):
            hint = "; it is an FSx file system, so write source: FSxLustre"
        elif _LIKE_S3_FILES.fullmatch(name):
            hint += (
                ". If it belongs to S3 Files, whose IDs look the same, read the bucket: training jobs cannot mount it"
            )
        yield path, "efs-missing", f"there is no EFS file system {name} in {subject.account.region}{hint}"
    elif (state := known[0].get("LifeCycleState", "available")) not in READY:
        yield path, "efs-not-ready", f"{name} is {state!r}, not available; wait until it is, or name another"


CHECK = Check(
    "EFS",
    "Do the EFS file systems exist, and are they available?",
    _ask,
    channels_of("EFS"),
    errors={
        "efs-missing": "There is no such EFS file system in this account and region.",
        "efs-not-ready": "The EFS file system is being created or deleted.",
    },
)
