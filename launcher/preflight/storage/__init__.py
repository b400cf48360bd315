"""Checks of file systems (EFS, FSx) and of disk space.

The card of a storage kind names the checks that look at its channels (`launcher.spec.channels`).
"""

from __future__ import annotations

from launcher.errors import SpecPath
from launcher.preflight.check import Subject
from launcher.request.view import Entry
from launcher.spec.channels import KINDS, source_of_entry


def file_system_channels(subject: Subject, check: str) -> list[tuple[SpecPath, Entry]]:
    """Return the channels that a check looks at, each with the path of its `file_system_id`."""
    checked = {source for source, kind in KINDS.items() if check in kind.PREFLIGHT}
    entries = (entry for entry in subject.draft.entries if source_of_entry(entry.request) in checked)
    return [(entry.path("file_system_id"), entry) for entry in entries if entry.get("FileSystemId")]
