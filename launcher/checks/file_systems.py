"""Rules on channels that lie on EFS or FSx for Lustre."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.checks.rule import Draft, Found, Rule


def file_systems_need_a_vpc(draft: Draft) -> Iterator[Found]:
    """EFS and FSx are reached through the job's own network (developer guide, model-access-training-data)."""
    if draft.get("VpcConfig") is None:
        for entry in draft.entries:
            if entry.is_file_system:
                yield (
                    ("channels", entry.name),
                    "is a file system, which is reached only from inside its VPC; add"
                    " vpc_config: {security_group_ids: [sg-...], subnets: [subnet-...]}",
                )


def file_systems_use_file_mode(draft: Draft) -> Iterator[Found]:
    """File system channels must use File mode (developer guide, your-algorithms-training-algo-running-container)."""
    for entry in draft.entries:
        if entry.is_file_system and entry.get("InputMode") != "File":
            yield (
                entry.path("input_mode"),
                f"is {entry.get('InputMode')!r}, but a file system is always File; delete the key",
            )


def directory_path_is_absolute(draft: Draft) -> Iterator[Found]:
    """FileSystemDataSource.DirectoryPath is the full path; the model's pattern takes anything."""
    for entry in draft.entries:
        path = entry.get("DirectoryPath")
        if path is not None and not path.startswith("/"):
            yield entry.path("directory_path"), f"{path!r} is not a full path; write '/{path}'"


def fsx_mount_name(draft: Draft) -> Iterator[Found]:
    """FSx paths begin with the file system's mount name, which is `fsx` on Scratch_1 file systems only."""
    for entry in draft.entries:
        path = entry.get("DirectoryPath") or ""
        if entry.get("FileSystemType") == "FSxLustre" and re.match(r"/fsx(/|$)", path):
            yield (
                entry.path("directory_path"),
                f"{path!r} is right on SCRATCH_1 file systems only; others have a mount name of their own"
                " (`aws fsx describe-file-systems` shows it as MountName)",
            )


def _efs(keys: str, source: str = "EFS") -> str:
    return (
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
        f"channels: {{train: {{source: {source}, file_system_id: fs-0123456789abcdef0, {keys}}}}}"
    )


_NO_VPC = "channels: {train: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /data}}"

RULES = (
    Rule(
        "file-system-needs-vpc",
        "error",
        file_systems_need_a_vpc,
        wrong=_NO_VPC,
        right=_efs("directory_path: /data"),
    ),
    Rule(
        "file-system-mode",
        "error",
        file_systems_use_file_mode,
        wrong=_efs("directory_path: /data, input_mode: FastFile"),
        right=_efs("directory_path: /data, input_mode: File"),
    ),
    Rule(
        "directory-path-absolute",
        "error",
        directory_path_is_absolute,
        wrong=_efs("directory_path: data"),
        right=_efs("directory_path: /data"),
    ),
    Rule(
        "fsx-mount-name",
        "warning",
        fsx_mount_name,
        wrong=_efs("directory_path: /fsx/data", "FSxLustre"),
        right=_efs("directory_path: /abcdefgh/data", "FSxLustre"),
    ),
)
