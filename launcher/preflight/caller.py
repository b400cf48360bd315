"""The account and the region that the job is for."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.check import Check, Finding, Subject


def name_account(subject: Subject) -> Iterator[Finding]:
    """Note the account and the region. Raises AwsError."""
    subject.note((), f"account {subject.own_account}, region {subject.account.region}")
    yield from ()


CHECK = Check("account", "Which account and region is the job for?", name_account, {})
