"""What a preflight check is: questions to AWS, read-only, and what is found wrong; and the subject that it asks about."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from launcher.aws.account import Account
from launcher.checks.rule import Draft
from launcher.errors import Path
from launcher.plan import Plan

Found = tuple[Path, str, str]  # the place in the spec; the code; what is wrong, why, and what to do
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Check:
    """One row of the table of checks. An AwsError that `ask` does not catch means that the check could not be asked."""

    name: str  # what is looked at: `buckets`, `role`, `quotas`
    ask: Callable[[Subject], Iterator[Found]]
    codes: Mapping[str, tuple[Severity, str]]  # code -> (severity, why, for the documentation)


@dataclass(frozen=True)
class Subject:
    """A plan that is checked, the account that it is for, and the answers so far."""

    plan: Plan
    account: Account
    full: bool = False  # list prefixes to their end
    _answers: dict[str, Future[dict[str, Any]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def request(self) -> Mapping[str, Any]:
        """The request that would be sent."""
        return self.plan.request

    @property
    def draft(self) -> Draft:
        """The request as rules look at it: channels with their modes, hosts of each, instance types."""
        return Draft(self.plan.spec, self.plan.request)

    def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """AWS's answer; the same question is asked once, whichever checks want to know. Raises AwsError."""
        key = repr((service, operation, sorted(parameters.items())))
        with self._lock:
            first = key not in self._answers
            answer = self._answers.setdefault(key, Future())
        if first:
            try:
                answer.set_result(self.account.call(service, operation, **parameters))
            except BaseException as error:
                answer.set_exception(error)
                raise
        return answer.result()
