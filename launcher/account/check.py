"""What a check of the account is: one question to AWS, and the problems that the answer shows in a job.

Checks run at the same time, each in its own thread with its own `Subject`; they share AWS's answers. A question without an answer
is recorded as not asked, and is never a problem.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from launcher.aws.session import Account, AwsError
from launcher.aws.threads import concurrently, settle
from launcher.errors import Problem, RefusedError, SpecPath
from launcher.request.view import Draft
from launcher.s3.uri import S3Location
from launcher.tables import read_table

_In = TypeVar("_In")
_Out = TypeVar("_Out")
Note = tuple[SpecPath, str]  # place in the spec; a fact worth knowing, or why a question has no answer
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Check:
    """One question to AWS; checks.yaml has its codes, each with the reason why it is a problem.

    Args:
        name: What is checked, such as `buckets`.
        find: Yields the problems of a subject; with `each`, those of one thing: `find(subject, path, thing)`. Its docstring
            begins with the question. If it raises AwsError, the check, or the question about this thing, is not asked.
        each: Returns the things to ask about, each with its path in the spec; they are asked about at the same time.
    """

    name: str
    find: Callable[..., Iterable[Problem]]
    each: Callable[[Subject], Iterable[tuple[SpecPath, Any]]] | None = None

    @property
    def question(self) -> str:
        """What the check finds out, for the documentation."""
        return (self.find.__doc__ or "").partition("\n")[0]

    @property
    def codes(self) -> dict[str, tuple[Severity, str]]:
        table = read_table(__file__, "checks").get(self.name, {})
        severities: tuple[Severity, ...] = ("error", "warning")
        return {code: (severity, why) for severity in severities for code, why in table.get(severity, {}).items()}

    def problems(self, subject: Subject) -> Iterator[Problem]:
        """Yield what the check finds, each with the severity of its code. Raises RefusedError."""
        codes = self.codes
        found = subject.each(self.each(subject), partial(self.find, subject)) if self.each else self.find(subject)
        for problem in found:
            assert problem.code in codes, f"add {problem.code} to {self.name!r} in launcher/account/checks.yaml"
            yield problem._replace(severity=codes[problem.code][0])


@dataclass
class Answers:
    """The answers so far and the time of the first question; shared by all checks."""

    by_question: dict[str, Future[Any]] = field(default_factory=dict)
    looked_at: dict[S3Location, int] = field(default_factory=dict)  # objects of long listings and manifests
    lock: threading.Lock = field(default_factory=threading.Lock)
    started: float = field(default_factory=time.monotonic)


@dataclass
class Subject:
    """A job that is checked, the account it is for, and the answers so far."""

    draft: Draft  # the request that would be sent, and the spec it was built from
    _account: Account
    code_uri: str | None  # where the code will be uploaded; None if the job has no code
    full: bool  # whether prefixes are listed to their end, however long that takes
    answers: Answers = field(default_factory=Answers)
    notes: list[Note] = field(default_factory=list)
    not_asked: list[Note] = field(default_factory=list)
    has_asked: bool = False  # whether the check needed the account
    has_answer: bool = False  # whether AWS answered any question of the check
    refusal: AwsError | None = None  # of the last question of `try_to_ask` that has no answer

    @property
    def account(self) -> Account:
        """The account, for calls that `ask` cannot make."""
        self.has_asked = True
        return self._account

    @property
    def caller(self) -> Mapping[str, str]:
        """The caller's Account and Arn. Raises AwsError."""
        account = self.account
        answer: Mapping[str, str] = self.once("caller", lambda: account.caller)
        return answer

    @property
    def own_account(self) -> str:
        """The caller's account ID, 12 digits. Raises AwsError."""
        return self.caller["Account"]

    def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Return AWS's answer; checks that ask the same question share one call. Raises AwsError."""
        account = self.account
        key = repr((service, operation, sorted(parameters.items())))
        answer: dict[str, Any] = self.once(key, lambda: account.call(service, operation, **parameters))
        return answer

    def once(self, key: str, find_out: Callable[[], Any]) -> Any:
        """Return what `find_out` returns, or raise what it raises; it is called once per key, for all checks."""
        self.has_asked = True
        with self.answers.lock:
            first = key not in self.answers.by_question
            answer = self.answers.by_question.setdefault(key, Future())
        if first:
            settle(answer, find_out)
        result = answer.result()
        self.has_answer = True
        return result

    def find(self, service: str, operation: str, **parameters: Any) -> dict[str, Any] | None:
        """Return AWS's answer; None if what it is about does not exist. Raises AwsError."""
        try:
            return self.ask(service, operation, **parameters)
        except AwsError as error:
            if error.is_missing:
                return None
            raise

    def try_to_ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Return AWS's answer; an empty one if AWS refuses. Raises AwsError if it does not accept the credentials."""
        try:
            return self.ask(service, operation, **parameters)
        except AwsError as error:
            if error.is_unauthenticated:
                raise
            if not error.is_missing:
                self.refusal = error
            return {}

    def each(
        self, things: Iterable[tuple[SpecPath, _In]], look: Callable[[SpecPath, _In], Iterable[_Out]]
    ) -> Iterator[_Out]:
        """Yield what `look` yields for each thing, given its path in the spec; all are asked about at the same time.

        A thing that AWS does not answer for is reported as not asked, but the checks `buckets` and `manifests` report what is
        missing in S3. Raises AwsError if AWS does not accept the credentials.
        """

        def ask(thing: tuple[SpecPath, _In]) -> tuple[list[_Out], RefusedError | None]:
            found = list[_Out]()
            try:
                found.extend(look(*thing))
            except RefusedError as error:
                return found, error
            return found, None

        for (path, _), answer in concurrently(ask, list(things)):
            found, error = answer.result()
            yield from found
            is_missing = isinstance(error, AwsError) and error.status == 404 and error.call.startswith("s3:")
            if error is not None and not is_missing:
                self.could_not_ask(path, error)

    def note(self, path: SpecPath, text: str) -> None:
        self.notes.append((path, text))

    def could_not_ask(self, path: SpecPath, error: RefusedError) -> None:
        """Record that one question has no answer. Raises the error if AWS does not accept the credentials."""
        if isinstance(error, AwsError) and error.is_unauthenticated:
            raise error
        self.not_asked.append((path, why_not(error)))


def why_not(error: RefusedError) -> str:
    return f"you may not ask: {error}" if isinstance(error, AwsError) and error.is_denied else str(error)
