"""What a preflight check is: read-only questions to AWS, the problems that their answers show, and the job they are about.

Checks run at the same time, each in its own thread with its own `Subject`; the answers of AWS are shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from launcher.aws.account import Account, AwsError
from launcher.aws.threads import at_once
from launcher.errors import RefusedError, SpecPath
from launcher.request.view import Draft
from launcher.s3.uri import S3Location

_T = TypeVar("_T")
Finding = tuple[SpecPath, str, str]  # place in the spec; code; what is wrong, why, and what to do
Note = tuple[SpecPath, str]  # place in the spec; a fact worth knowing, or why a question has no answer
Progress = tuple[int, int | None]  # objects looked at; their total, if known
Severity = Literal["error", "warning"]
# Error codes of S3-compatible endpoints that do not know an operation.
_UNKNOWN_CALL = (
    "NotImplemented",
    "MethodNotAllowed",
    "UnknownOperation",
    "UnknownOperationException",
    "InvalidAction",
    "UnsupportedOperation",
    "405",
    "501",
)


@dataclass(frozen=True)
class Check:
    """One line of the table of checks.

    The check counts as not asked if `ask` raises AwsError.
    """

    name: str  # what is checked: `buckets`, `role`, `quotas`
    question: str  # what the check finds out, for the documentation
    ask: Callable[[Subject], Iterator[Finding]]
    codes: Mapping[str, tuple[Severity, str]]  # code -> (severity, why it is a problem)


@dataclass
class _Answers:
    """The answers so far and the time of the first question; shared by all checks."""

    by_question: dict[str, Future[Any]] = field(default_factory=dict)
    progress: dict[S3Location, Progress] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    started: float = field(default_factory=time.monotonic)


class Subject:
    """A job that is checked, the account it is for, and the answers so far.

    Args:
        draft: The request that would be sent, and the spec it was built from.
        account: The account to ask.
        code_uri: Where the code will be uploaded; None if the job has no code.
        full: List prefixes to their end, however long that takes.
        answers: Answers of other checks to share.
    """

    def __init__(
        self,
        draft: Draft,
        account: Account,
        *,
        code_uri: str | None = None,
        full: bool = False,
        answers: _Answers | None = None,
    ) -> None:
        self.draft, self.code_uri, self.full = draft, code_uri, full
        self.notes: list[Note] = []
        self.not_asked: list[Note] = []
        self.has_asked = False
        """Whether the check needed the account."""
        self._account = account
        self._answers = answers or _Answers()

    def for_one_check(self) -> Subject:
        """Return a subject with its own notes and the same answers."""
        return Subject(self.draft, self._account, code_uri=self.code_uri, full=self.full, answers=self._answers)

    @property
    def account(self) -> Account:
        """The account, for calls that `ask` cannot make."""
        self.has_asked = True
        return self._account

    @property
    def own_account(self) -> str:
        """The caller's account ID, 12 digits. Raises AwsError."""
        account: str = self.ask("sts", "get_caller_identity")["Account"]
        return account

    @property
    def request(self) -> Mapping[str, Any]:
        """The request that would be sent."""
        return self.draft.request

    @property
    def progress(self) -> dict[S3Location, Progress]:
        """Progress of long listings and manifests; each thread sets its own entry."""
        return self._answers.progress

    @property
    def seconds(self) -> float:
        """Seconds since the first question."""
        return time.monotonic() - self._answers.started

    def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Return AWS's answer; checks that ask the same question share one call. Raises AwsError."""
        account = self.account
        key = repr((service, operation, sorted(parameters.items())))
        answer: dict[str, Any] = self.once(key, lambda: account.call(service, operation, **parameters))
        return answer

    def once(self, key: str, find_out: Callable[[], Any]) -> Any:
        """Return what `find_out` returns, or raise what it raises; it is called once per key, for all checks."""
        self.has_asked = True
        with self._answers.lock:
            first = key not in self._answers.by_question
            answer = self._answers.by_question.setdefault(key, Future())
        if first:
            try:
                answer.set_result(find_out())
            except BaseException as error:
                answer.set_exception(error)
                raise
        return answer.result()

    def each(
        self, things: Iterable[tuple[SpecPath, _T]], look: Callable[[SpecPath, _T], Iterable[Finding]]
    ) -> Iterator[Finding]:
        """Yield the findings of `look` for each thing, given its path in the spec; all are asked about at the same time.

        A thing that AWS does not answer for is reported as not asked. A missing bucket is left to the check `buckets`.

        Raises:
            AwsError: The credentials have expired.
        """
        pairs: Sequence[tuple[SpecPath, _T]] = list(things)
        for (path, _), answer in at_once(lambda pair: list(look(*pair)), pairs):
            try:
                yield from answer.result()
            except AwsError as error:
                if error.code != "NoSuchBucket":
                    self.could_not_ask(path, error)

    def note(self, path: SpecPath, text: str) -> None:
        """Add a fact to the report that is not a problem."""
        self.notes.append((path, text))

    def could_not_ask(self, path: SpecPath, error: RefusedError) -> None:
        """Record that one question has no answer. Raises the error if the credentials have expired: then none will have one."""
        if isinstance(error, AwsError) and error.is_expired:
            raise error
        self.not_asked.append((path, why_not(error)))


def why_not(error: RefusedError) -> str:
    """Return why a question has no answer, in words that show whether the user can change that."""
    if isinstance(error, AwsError) and error.is_denied:
        return f"you may not ask: {error}"
    if isinstance(error, AwsError) and (error.code in _UNKNOWN_CALL or error.status in (405, 501)):
        return f"not supported by this endpoint: {error}"
    return str(error)


def joined(names: Iterable[str], most: int = 4) -> str:
    """Return `a, b, c and 3 more`."""
    names = list(names)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def as_list(value: Any) -> list[Any]:
    """Return a policy's value as a list: policies may write a single value without one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
