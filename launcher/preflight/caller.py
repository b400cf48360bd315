"""The account and the region that the job is for."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.preflight.asking import own_account
from launcher.preflight.check import Check, Found, Subject


def who_asks(subject: Subject) -> Iterator[Found]:
    """Tell the account and the region that the job is for. Raises AwsError."""
    subject.note((), f"account {own_account(subject)}, region {subject.account.region}")
    yield from ()


CHECK = Check("account", who_asks, {})
