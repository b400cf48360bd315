"""FSx for Lustre channels: whether the file system is there, under the name that the path begins with, and can be reached.

Lustre talks on 988 and, for what servers ask of clients, on 1018-1023 (FSx user guide, limit-access-security-groups). A job
can do without the second, so only the first is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.asking import each
from launcher.preflight.check import Check, Found, Subject
from launcher.preflight.storage import file_system_channels
from launcher.request.view import Entry

_NEAR = 0.75  # how like a mount name a misspelt one is: two of eight characters may differ
_READY = ("AVAILABLE", "UPDATING", "MISCONFIGURED")


def file_systems_are_ready(subject: Subject) -> Iterator[Found]:
    """Whether each file system exists, is Lustre and available, and has the mount name that the path begins with."""

    def look(path: SpecPath, entry: Entry) -> Iterator[Found]:
        name, known = entry.get("FileSystemId"), described_file_system(subject, entry)
        if known is None:
            hint = (
                "; it is on EFS: write source: EFS"
                if _is_on_efs(subject, name)
                else "; name one of `aws fsx describe-file-systems`"
            )
            yield path, "fsx-missing", f"{name} is no FSx file system in {subject.account.region}{hint}"
            return
        kind, state = known.get("FileSystemType", "LUSTRE"), known.get("Lifecycle", "AVAILABLE")
        if kind != "LUSTRE":
            yield (
                path,
                "fsx-not-lustre",
                f"{name} is a file system of {kind}, and a job mounts Lustre only; name one of LUSTRE",
            )
        elif state not in _READY:
            yield path, "fsx-not-ready", f"{name} is {state}, not AVAILABLE; wait until it is, or name another"
        yield from _name_fits(entry, known)

    yield from each(subject, file_system_channels(subject, "FSx"), look)


def described_file_system(subject: Subject, entry: Entry) -> Mapping[str, Any] | None:
    """FSx's description; None where it knows of none. Raises AwsError."""
    try:
        answer = subject.ask("fsx", "describe_file_systems", FileSystemIds=[entry.get("FileSystemId")])
    except AwsError as error:
        if error.code == "FileSystemNotFound":
            return None
        raise
    found: list[Mapping[str, Any]] = answer.get("FileSystems", [])
    return found[0] if found else None


def _name_fits(entry: Entry, known: Mapping[str, Any]) -> Iterator[Found]:
    mount = known.get("LustreConfiguration", {}).get("MountName")
    said = entry.get("DirectoryPath") or ""
    first, _, rest = said.lstrip("/").partition("/")
    if not mount or not said.startswith("/") or first == mount:
        return
    whole, inner = (f"/{mount}/{each}".rstrip("/") for each in (said.strip("/"), rest))
    right = f"write {whole!r}"
    if first == "fsx" or SequenceMatcher(None, first.casefold(), mount.casefold()).ratio() >= _NEAR:
        right = f"write {inner!r}"  # misspelt, or that of all file systems of SCRATCH_1 and of many an example
    elif re.fullmatch(r"[a-z0-9]{8}", first):
        right = (
            f"write {whole!r} where {first!r} is a folder, or {inner!r} where it is another file system's mount name"
        )
    yield (
        entry.path("directory_path"),
        "fsx-mount-name-wrong",
        f"{said!r} does not begin with {mount}, the mount name of {entry.get('FileSystemId')}; {right}",
    )


def _is_on_efs(subject: Subject, name: str) -> bool:
    try:
        return bool(subject.ask("efs", "describe_file_systems", FileSystemId=name).get("FileSystems"))
    except AwsError:
        return False  # a hint only


CHECK = Check(
    "FSx",
    file_systems_are_ready,
    {
        "fsx-missing": ("error", "There is no such FSx file system in this account and region."),
        "fsx-not-lustre": ("error", "A job mounts FSx for Lustre, not FSx's other file systems."),
        "fsx-not-ready": ("error", "The file system is being made or deleted, or has failed."),
        "fsx-mount-name-wrong": ("error", "The directory's path begins with the file system's mount name."),
    },
)
