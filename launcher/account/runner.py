"""Run all checks at the same time, within a time limit, and collect their results.

A check that AWS does not answer in time is reported as not asked and blocks nothing. Missing credentials or a missing region
raise an error, since the submission would fail in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

from launcher.account import CHECKS
from launcher.account.check import Check, Finding, Note, Progress, Subject, why_not
from launcher.account.report import CheckResult, Report
from launcher.aws.account import Account, AwsError, CredentialsError
from launcher.aws.bucket_owners import expect_owners
from launcher.aws.threads import start
from launcher.console import Console
from launcher.errors import Problem, RefusedError, SpecPath
from launcher.planning import Plan
from launcher.request.view import Draft
from launcher.spec.names import place_of_name

_POLL_SECONDS = 0.1
PROGRESS_SECONDS = 10.0
DEADLINE = 5.0  # seconds, unless prefixes are listed to their ends


@dataclass
class _Run:
    """A check that runs in its own thread; its findings so far count even if it does not finish."""

    check: Check
    subject: Subject
    found: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.future: Future[None] = start(self._run)

    def _run(self) -> None:
        before = time.monotonic()
        try:
            for each in self.check.findings(self.subject):
                self.found.append(each)
        finally:
            self.seconds = time.monotonic() - before

    @property
    def refusal(self) -> RefusedError | None:
        """Why the check could not ask, if it has ended so. Raises any other exception of the check: a bug of ours."""
        error = self.future.exception() if self.future.done() else None
        if error is None or isinstance(error, RefusedError):
            return error
        raise error


def check_account(
    plan: Plan,
    account: Account,
    *,
    ignore: tuple[str, ...] = (),
    checks: tuple[Check, ...] = CHECKS,
    deadline: float | None = DEADLINE,
    console: Console | None = None,
) -> Report:
    """Run the checks of a plan with read-only calls, and suppress the codes to ignore, besides those of the spec.

    Checks that have not finished after `deadline` seconds are reported as not asked. Without one, each prefix is listed to its
    end, and progress is printed. Raises RefusedError if no question can be answered: there are no credentials that AWS
    accepts, or no region.
    """
    account.require_credentials()  # before the deadline counts, which a busy machine may need for that
    expect_owners(plan, account)
    began = time.monotonic()
    subject = subject_of(plan, account, full=deadline is None)
    runs = [_Run(check, subject.for_one_check()) for check in checks]
    _wait(runs, account, deadline, console)
    _refuse_if_none_answered(account, runs)
    ignored = {*(plan.spec.ignore or ()), *ignore}
    results = [_result(plan, run, ignored, deadline) for run in runs]
    return Report(results, time.monotonic() - began)


def subject_of(plan: Plan, account: Account, *, full: bool = False) -> Subject:
    """Return the plan and account that the checks examine."""
    return Subject(Draft(plan.spec, plan.request), account, plan.code_uri, full)


def _wait(runs: Sequence[_Run], account: Account, deadline: float | None, console: Console | None) -> None:
    """Wait until all checks have ended, there are no credentials, or the deadline is over.

    If there has been no answer at all by the deadline, as on a busy machine, wait as long again: the first answer may be that
    AWS does not accept the credentials. Without a deadline, print the progress of the listings every few seconds.
    """
    began = time.monotonic()
    due = PROGRESS_SECONDS
    waiting = {run.future for run in runs}
    while waiting:
        _, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
        if any(isinstance(run.refusal, CredentialsError) for run in runs):
            return
        seconds = time.monotonic() - began
        if deadline is not None and seconds >= deadline and (account.answered or seconds >= 2 * deadline):
            return
        progress = runs[0].subject.answers.progress
        if deadline is None and seconds >= due:
            due = seconds + PROGRESS_SECONDS
            if console is not None and progress:
                console.say(f"listed    {described(progress.values())}")


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


def _refuse_if_none_answered(account: Account, runs: Sequence[_Run]) -> None:
    """Raise RefusedError if all questions fail for one reason on our side: credentials, region or connection."""
    refused = [error for run in runs if (error := run.refusal) is not None]
    for error in refused:
        if isinstance(error, AwsError) and error.is_unauthenticated:
            raise error
    asked = sum(run.subject.has_asked for run in runs)
    ours = [error for error in refused if not isinstance(error, AwsError)]
    if ours and len(ours) == asked:
        raise ours[0]
    if asked and account.silence:
        raise RefusedError(account.silence)


def _result(plan: Plan, run: _Run, ignored: set[str], deadline: float | None) -> CheckResult:
    spec, origin = plan.spec, plan.origin

    def problem(path: SpecPath, code: str, message: str) -> Problem:
        place = origin.place_of_key(path)
        location = spec.locate(place)
        if code == "name-taken":
            _, location = place_of_name(plan.request["TrainingJobName"], spec)
        return Problem(
            place, _printable(spec.variables.masked(message, place)), code, run.check.codes[code][0], location
        )

    def in_order(notes: list[Note]) -> list[Note]:
        placed = [(origin.place_of_key(path), _printable(text)) for path, text in list(notes)]
        return sorted(placed, key=lambda each: (at.line, at.column) if (at := spec.locate(each[0])) else (0, 0))

    # The lists are copied first, since a check that has not ended may still append to them.
    problems = [problem(*each) for each in list(run.found) if each[1] not in ignored]
    not_asked, seconds = in_order(run.subject.not_asked), run.seconds
    if not run.future.done() and deadline is not None:
        not_asked.append(((), f"no answer in {deadline:g} s"))
        seconds = deadline
    elif (error := run.refusal) is not None:
        not_asked.append(((), why_not(error)))
    elif run.subject.refusal is not None and not run.subject.has_answer:
        not_asked.append(((), why_not(run.subject.refusal)))
    is_needed = run.subject.has_asked or bool(run.found)
    return CheckResult(run.check.name, seconds, problems, in_order(run.subject.notes), not_asked, is_needed)


def _printable(text: str) -> str:
    """Return the text with unprintable characters escaped: the S3 keys it quotes can hold any character."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
