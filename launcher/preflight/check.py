"""What a preflight check is: questions to AWS, read-only, and what is found wrong; and the subject that it asks about.

Checks run at the same time, each in a thread of its own with a `Subject` of its own; what AWS has answered is shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from launcher.aws.account import Account, AwsError
from launcher.errors import RefusedError, SpecPath
from launcher.planning import Plan
from launcher.request.view import Draft
from launcher.s3.uri import Place

Found = tuple[SpecPath, str, str]  # the place in the spec; the code; what is wrong, why, and what to do
# A place in the spec; something about it that is worth knowing, or why it could not be asked.
Told = tuple[SpecPath, str]
Progress = tuple[int, int | None]  # objects looked at; how many there are, if that is known
Severity = Literal["error", "warning"]
_UNKNOWN_CALL = (  # codes of endpoints that speak to us, but do not know what we ask
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
    """One row of the table of checks. An AwsError that `ask` does not catch means that the check could not be asked."""

    name: str  # what is looked at: `buckets`, `role`, `quotas`
    ask: Callable[[Subject], Iterator[Found]]
    codes: Mapping[str, tuple[Severity, str]]  # code -> (severity, why, for the documentation)


@dataclass
class _Answers:
    """What has been answered, and since when there have been questions; shared by all checks."""

    by_question: dict[str, Future[Any]] = field(default_factory=dict)
    progress: dict[Place, Progress] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    started: float = field(default_factory=time.monotonic)


class Subject:
    """A plan that is checked, the account that it is for, and the answers so far."""

    def __init__(self, plan: Plan, account: Account, full: bool = False, answers: _Answers | None = None) -> None:
        self.plan = plan
        self.full = full  # list prefixes to their end, whatever the time
        self.draft = Draft(plan.spec, plan.request)
        """The request as rules look at it: channels with their modes, hosts of each, instance types."""
        self.notes: list[Told] = []
        self.not_asked: list[Told] = []
        self.has_asked = False
        """Whether the account was needed at all."""
        self._account = account
        self._answers = answers or _Answers()

    def for_one_check(self) -> Subject:
        """A subject with notes of its own, and with the same answers."""
        return Subject(self.plan, self._account, self.full, self._answers)

    @property
    def account(self) -> Account:
        """The account, for what `ask` cannot do."""
        self.has_asked = True
        return self._account

    @property
    def request(self) -> Mapping[str, Any]:
        """The request that would be sent."""
        return self.plan.request

    @property
    def progress(self) -> dict[Place, Progress]:
        """How far the prefixes and manifests that take long are looked through; any thread sets its own."""
        return self._answers.progress

    @property
    def seconds(self) -> float:
        """How long ago the questions began."""
        return time.monotonic() - self._answers.started

    def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """AWS's answer; the same question is asked once, whichever checks want to know. Raises AwsError."""
        account = self.account
        key = repr((service, operation, sorted(parameters.items())))
        answer: dict[str, Any] = self.once(key, lambda: account.call(service, operation, **parameters))
        return answer

    def once(self, key: str, find_out: Callable[[], Any]) -> Any:
        """What `find_out` gives, or raises; it is called once for each key, whichever checks want to know."""
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

    def note(self, path: SpecPath, text: str) -> None:
        """Tell a fact that the report shows: nothing is wrong with it."""
        self.notes.append((path, text))

    def could_not_ask(self, path: SpecPath, error: RefusedError) -> None:
        """Tell that one of a check's questions has no answer, and go on with the others.

        Raises it where the credentials have expired, since then none has.
        """
        if isinstance(error, AwsError) and error.is_expired:
            raise error
        self.not_asked.append((path, why_not(error)))


def why_not(error: RefusedError) -> str:
    """Why something could not be asked, in words that say whether anything can be done about it."""
    if isinstance(error, AwsError) and error.is_denied:
        return f"you may not ask: {error}"
    if isinstance(error, AwsError) and (error.code in _UNKNOWN_CALL or error.status in (405, 501)):
        return f"not supported by this endpoint: {error}"
    return str(error)
