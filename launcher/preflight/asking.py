"""How checks ask about several things: one that AWS does not answer for hides nothing about the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.preflight.check import Found, Subject

_T = TypeVar("_T")


def each(
    subject: Subject, things: Iterable[tuple[SpecPath, _T]], look: Callable[[SpecPath, _T], Iterator[Found]]
) -> Iterator[Found]:
    """What `look` finds about each thing at its place in the spec; what could not be asked about is told as such.

    Raises AwsError where the credentials have expired, since then nothing can be asked.
    """
    for path, thing in things:
        try:
            yield from look(path, thing)
        except AwsError as error:
            if error.is_expired:
                raise
            subject.could_not_ask(path, error)


def own_account(subject: Subject) -> str:
    """The caller's account, of 12 digits. Raises AwsError."""
    account: str = subject.ask("sts", "get_caller_identity")["Account"]
    return account


def listed(names: Iterable[str], most: int = 4) -> str:
    """`a, b, c and 3 more`."""
    names = list(names)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
