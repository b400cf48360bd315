"""Run all checks at the same time, within a time limit, and collect their results.

A check that AWS does not answer in time is reported as not asked and blocks nothing. Missing credentials or a missing region
raise an error, since the submission would fail in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

from launcher.aws.account import Account, AwsError, CredentialsError
from launcher.aws.threads import start
from launcher.console import Console
from launcher.errors import Problem, RefusedError, SpecPath
from launcher.planning import Plan
from launcher.preflight import CHECKS
from launcher.preflight.check import Check, Finding, Note, Progress, Subject, why_not
from launcher.preflight.report import CheckResult, Report
from launcher.request.view import Draft
from launcher.spec.names import place_of_name

_POLL_SECONDS = 0.1
PROGRESS_SECONDS = 10.0
DEADLINE = 5.0  # seconds, unless prefixes are listed to their ends


@dataclass
class _Run:
    """A running check; what it has found so far counts even if it does not finish."""

    check: Check
    subject: Subject
    found: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def __call__(self) -> None:
        before = time.monotonic()
        try:
            for each in self.check.findings(self.subject):
                self.found.append(each)
        finally:
            self.seconds = time.monotonic() - before


def preflight(
    plan: Plan,
    account: Account,
    *,
    ignore: tuple[str, ...] = (),
    checks: tuple[Check, ...] = CHECKS,
    deadline: float | None = DEADLINE,
    console: Console | None = None,
) -> Report:
    """Run the checks of a plan with read-only calls.

    Args:
        plan: The plan to check.
        account: The account to ask.
        ignore: Codes to suppress, besides those of the spec.
        checks: The checks to run.
        deadline: Seconds after which unfinished checks are reported as not asked. None lists each prefix to its end.
        console: Where progress is printed if there is no deadline.

    Raises:
        RefusedError: No question can be answered: there are no credentials, no region, or the credentials have expired.
    """
    began = time.monotonic()
    subject = subject_of(plan, account, full=deadline is None)
    runs = [_Run(check, subject.for_one_check()) for check in checks]
    under_way = [start(run) for run in runs]
    if deadline is None:
        _wait_to_the_end(set(under_way), subject, console)
    else:
        _wait(set(under_way), account, began + deadline, deadline)
    refused = [error for run in under_way if (error := _refusal(run)) is not None]
    _refuse_if_none_answered(account, refused, [run for run in runs if run.subject.has_asked])
    ignored = {*(plan.spec.ignore or ()), *ignore}
    results = [_result(plan, run, ended, ignored, deadline) for run, ended in zip(runs, under_way, strict=True)]
    return Report(results, time.monotonic() - began)


def subject_of(plan: Plan, account: Account, *, full: bool = False) -> Subject:
    """Return what the checks of a plan ask about."""
    return Subject(Draft(plan.spec, plan.request), account, plan.code_uri, full)


def _refuse_if_none_answered(account: Account, refused: list[RefusedError], asked: list[_Run]) -> None:
    """Raise RefusedError if all questions fail for one reason on our side: credentials, region or connection."""
    for error in refused:
        if isinstance(error, AwsError) and error.is_expired:
            raise error
    ours = [error for error in refused if not isinstance(error, AwsError)]
    if ours and len(ours) == len(asked):
        raise ours[0]
    if asked and account.silence:
        raise RefusedError(account.silence)


def _wait_to_the_end(waiting: set[Future[None]], subject: Subject, console: Console | None) -> None:
    """Wait for all checks, and print the progress of the listings every few seconds."""
    due = time.monotonic() + PROGRESS_SECONDS
    while waiting:
        ended, waiting = wait(waiting, max(0.0, due - time.monotonic()), FIRST_COMPLETED)
        if _lacks_credentials(ended):
            return
        if time.monotonic() >= due:
            due = time.monotonic() + PROGRESS_SECONDS
            if console is not None and subject.progress:
                console.say(f"listed    {described(subject.progress.values())}")


def described(progress: Iterable[Progress]) -> str:
    """Return how many objects have been looked at and, as far as known, how many are left."""
    counts = list(progress)
    left = sum(total - done for done, total in counts if total is not None)
    unknown = sum(total is None for _, total in counts)
    words = [f"{sum(done for done, _ in counts):,} objects"]
    if left:
        words.append(f"{left:,} more are named by manifests")
    if unknown:
        words.append(f"{unknown} prefixes are still being listed" if unknown > 1 else "1 prefix is still being listed")
    return "; ".join(words)


def _wait(waiting: set[Future[None]], account: Account, until: float, extra: float) -> None:
    """Wait for all checks, or until the deadline.

    If there has been no answer at all by then, as on a busy machine, wait `extra` seconds more: the first answer may be that
    the credentials have expired.
    """
    while waiting:
        left = until - time.monotonic()
        if left <= 0:
            if account.answered or left <= -extra:
                return
            left = _POLL_SECONDS
        ended, waiting = wait(waiting, left, FIRST_COMPLETED)
        if _lacks_credentials(ended):
            return


def _lacks_credentials(ended: set[Future[None]]) -> bool:
    """Whether there are no credentials, so that no other question will be answered either."""
    return any(isinstance(_refusal(run), CredentialsError) for run in ended)


def _refusal(ended: Future[None]) -> RefusedError | None:
    """Return why a check could not ask, if it could not. Raises any other exception of the check: a bug of ours."""
    error = ended.exception() if ended.done() else None
    if error is None or isinstance(error, RefusedError):
        return error
    raise error


def _result(plan: Plan, run: _Run, ended: Future[None], ignored: set[str], deadline: float | None) -> CheckResult:
    spec, origin = plan.spec, plan.origin

    def problem(path: SpecPath, code: str, message: str) -> Problem:
        place = origin.place_of_key(path)
        location = spec.locate(place)
        if code == "name-taken":
            _, location = place_of_name(plan.request["TrainingJobName"], spec)
        return Problem(place, _printable(message), code, run.check.codes[code][0], location)

    problems = [problem(*each) for each in list(run.found) if each[1] not in ignored]

    def in_order(notes: list[Note]) -> list[Note]:
        placed = [(origin.place_of_key(path), _printable(text)) for path, text in list(notes)]
        return sorted(placed, key=lambda each: (at.line, at.column) if (at := spec.locate(each[0])) else (0, 0))

    not_asked = in_order(run.subject.not_asked)
    if not ended.done() and deadline is not None:
        not_asked.append(((), f"no answer in {deadline:g} s"))
    elif (error := _refusal(ended)) is not None:
        not_asked.append(((), why_not(error)))
    notes = in_order(run.subject.notes)
    is_needed = run.subject.has_asked or bool(run.found)
    return CheckResult(
        run.check.name, run.seconds if ended.done() else deadline or 0.0, problems, notes, not_asked, is_needed
    )


def _printable(text: str) -> str:
    """Return the text with unprintable characters escaped: the S3 keys it quotes can hold any character."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
