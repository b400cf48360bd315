"""Checks of file systems (EFS, FSx) and of disk space.

The card of a storage kind names the checks that look at its channels (`launcher.spec.channels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launcher.account.check import Subject
from launcher.errors import SpecPath
from launcher.request.view import Entry
from launcher.spec.channels import KINDS, source_of_entry


def channels_of(check: str) -> Callable[[Subject], Iterator[tuple[SpecPath, Entry]]]:
    """Return the function that yields the channels that a check looks at, each with the path of its `file_system_id`."""
    sources = {source for source, kind in KINDS.items() if check in kind.ACCOUNT_CHECKS}

    def find(subject: Subject) -> Iterator[tuple[SpecPath, Entry]]:
        for entry in subject.draft.entries:
            if source_of_entry(entry.request) in sources and entry.get("FileSystemId"):
                yield entry.path("file_system_id"), entry

    return find
