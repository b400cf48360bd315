"""Rules on channels stored on EFS or FSx for Lustre."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.checks.rule import Mistake, error, warning
from launcher.request.view import Draft

_SHOWS_MOUNT_NAME = "(`aws fsx describe-file-systems` shows it as MountName)"
_WORDS = ("datasets", "examples", "imagenet", "training")  # names of folders that look like mount names


@error("file-system-needs-vpc")
def file_systems_need_a_vpc(draft: Draft) -> Iterator[Mistake]:
    """EFS and FSx are reached through the job's own network."""
    if draft.get("VpcConfig") is None:
        remedy = "add vpc_config: {security_group_ids: [sg-...], subnets: [subnet-...]}"
        for entry in draft.entries:
            if entry.is_file_system:
                yield entry.whole, f"is a file system, which is reached only from inside its VPC; {remedy}"


@error("file-system-mode")
def file_systems_use_file_mode(draft: Draft) -> Iterator[Mistake]:
    """Channels of file systems are always in File mode: the directory itself is mounted, and nothing is copied."""
    for entry in draft.entries:
        if entry.is_file_system and entry.mode not in ("File", None):
            yield entry.path("input_mode"), f"is {entry.mode!r}, but a file system is always File; delete the key"


@error("directory-path-absolute")
def directory_path_is_absolute(draft: Draft) -> Iterator[Mistake]:
    """A directory on a file system is named by its full path; the model's pattern allows any text."""
    for entry in draft.entries:
        path = entry.get("DirectoryPath")
        if path is not None and not path.startswith("/"):
            on_fsx = entry.get("FileSystemType") == "FSxLustre"
            full = f"'/MOUNTNAME/{path}' {_SHOWS_MOUNT_NAME}" if on_fsx else repr(f"/{path}")
            yield entry.path("directory_path"), f"{path!r} is not a full path; write {full}"


@warning("fsx-mount-name")
def fsx_mount_name(draft: Draft) -> Iterator[Mistake]:
    """FSx paths begin with the file system's mount name, which is `fsx` on Scratch_1 file systems only."""
    for entry in draft.entries:
        path = entry.get("DirectoryPath") or ""
        if entry.get("FileSystemType") != "FSxLustre" or not path.startswith("/"):
            continue
        if re.match(r"/fsx(/|$)", path):
            remedy = f"on others write their own mount name {_SHOWS_MOUNT_NAME}"
            yield entry.path("directory_path"), f"{path!r} exists on SCRATCH_1 file systems only; {remedy}"
        elif not re.match(r"/[a-z0-9]{8}(/|$)", path) or path.split("/")[1] in _WORDS:
            example = f"write '/MOUNTNAME{path.rstrip('/')}' {_SHOWS_MOUNT_NAME}"
            yield entry.path("directory_path"), f"{path!r} does not begin with the file system's mount name; {example}"


@warning("shuffle-on-file-system")
def shuffling_needs_objects(draft: Draft) -> Iterator[Mistake]:
    """ShuffleConfig shuffles objects of S3; it has no meaning on a file system."""
    for entry in draft.entries:
        if entry.is_file_system and entry.get("ShuffleConfig") is not None:
            yield entry.path("shuffle_config"), "has no effect on a file system; delete it"
