"""FSx for Lustre channels: whether the file system exists, is available, and has the mount name that the path begins with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from launcher.errors import SpecPath
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.storage import channels_of
from launcher.request.view import Entry

_NEAR = 0.75  # similarity of a misspelt mount name: two of eight characters may differ
_READY = ("AVAILABLE", "UPDATING", "MISCONFIGURED")


def _ask(subject: Subject, path: SpecPath, entry: Entry) -> Iterator[Finding]:
    name, known = entry.get("FileSystemId"), described_file_system(subject, entry)
    if known is None:
        hint = "; name one of `aws fsx describe-file-systems`"
        if subject.try_to_ask("efs", "describe_file_systems", FileSystemId=name).get("FileSystems"):
            hint = "; it is an EFS file system, so write source: EFS"
        yield path, "fsx-missing", f"there is no FSx file system {name} in {subject.account.region}{hint}"
        return
    kind, state = known.get("FileSystemType", "LUSTRE"), known.get("Lifecycle", "AVAILABLE")
    if kind != "LUSTRE":
        remedy = "but a job mounts only Lustre; name an FSx for Lustre file system"
        yield path, "fsx-not-lustre", f"{name} is a {kind} file system, {remedy}"
    elif state not in _READY:
        yield path, "fsx-not-ready", f"{name} is {state}, not AVAILABLE; wait until it is, or name another"
    yield from _name_fits(entry, known)


def described_file_system(subject: Subject, entry: Entry) -> Mapping[str, Any] | None:
    """Return FSx's description; None if there is no such file system. Raises AwsError."""
    answer = subject.find("fsx", "describe_file_systems", FileSystemIds=[entry.get("FileSystemId")])
    return next(iter((answer or {}).get("FileSystems", ())), None)


def _name_fits(entry: Entry, known: Mapping[str, Any]) -> Iterator[Finding]:
    mount = known.get("LustreConfiguration", {}).get("MountName")
    directory = entry.get("DirectoryPath") or ""
    first, _, rest = directory.lstrip("/").partition("/")
    if not mount or not directory.startswith("/") or first == mount:
        return
    whole, inner = (f"/{mount}/{each}".rstrip("/") for each in (directory.strip("/"), rest))
    remedy = f"write {whole!r}"
    # Misspelt, or `fsx`: the mount name of all SCRATCH_1 file systems and of many examples.
    if first == "fsx" or SequenceMatcher(None, first.casefold(), mount.casefold()).ratio() >= _NEAR:
        remedy = f"write {inner!r}"
    elif re.fullmatch(r"[a-z0-9]{8}", first):
        remedy = f"write {whole!r} if {first!r} is a folder, or {inner!r} if it is another file system's mount name"
    wrong = f"{directory!r} does not begin with {mount}, the mount name of {entry.get('FileSystemId')}"
    yield entry.path("directory_path"), "fsx-mount-name-wrong", f"{wrong}; {remedy}"


CHECK = Check(
    "FSx",
    "Do the FSx for Lustre file systems exist, and is each path inside one?",
    _ask,
    channels_of("FSx"),
    errors={
        "fsx-missing": "There is no such FSx file system in this account and region.",
        "fsx-not-lustre": "A job mounts only FSx for Lustre, not FSx's other file systems.",
        "fsx-not-ready": "The file system is being created or deleted, or has failed.",
        "fsx-mount-name-wrong": "The directory path must begin with the file system's mount name.",
    },
)
