"""The account and the region that the job is for."""

from __future__ import annotations

from launcher.preflight.check import Check, Finding, Subject


def _ask(subject: Subject) -> list[Finding]:
    subject.note((), f"account {subject.own_account}, region {subject.account.region}")
    return []


CHECK = Check("account", "Which account and region is the job for?", _ask)
