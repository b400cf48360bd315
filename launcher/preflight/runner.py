"""Runs every check of the table at the same time, for so long and no longer, and gathers what they say.

Nothing here blocks: a check that AWS does not answer, or not in time, is reported as not asked. Only where there is nobody
to ask, for want of credentials or of a region, there is an error, since the submission itself would have the same.
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
from launcher.preflight.check import Check, Found, Progress, Subject, Told, why_not
from launcher.preflight.report import Outcome, Report
from launcher.spec.names import place_of_name

_LOOK_SECONDS = 0.1
PROGRESS_SECONDS = 10.0
DEADLINE = 5.0  # seconds, unless prefixes are listed to their ends


@dataclass
class _Run:
    """One check under way; what it has found so far counts even where it does not come to its end."""

    check: Check
    subject: Subject
    found: list[Found] = field(default_factory=list)
    seconds: float = 0.0

    def __call__(self) -> None:
        before = time.monotonic()
        try:
            for each in self.check.ask(self.subject):
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
    """Ask AWS, read-only, what can be known of a plan.

    Args:
        plan: What is checked.
        account: Whom to ask.
        ignore: Codes to leave out, besides the spec's own.
        checks: The checks to make.
        deadline: Seconds after which what is unanswered is reported so. None lists each prefix to its end.
        console: Where the progress is reported if there is no deadline.

    Raises:
        RefusedError: Nobody can be asked: no credentials, no region, or credentials that have expired.
    """
    began = time.monotonic()
    subject = Subject(plan, account, full=deadline is None)
    runs = [_Run(check, subject.for_one_check()) for check in checks]
    under_way = [start(run) for run in runs]
    if deadline is None:
        _wait_to_the_end(set(under_way), subject, console)
    else:
        _wait(set(under_way), account, began + deadline, deadline)
    refused = [error for run in under_way if (error := _refusal(run)) is not None]
    _refuse_if_nobody(account, refused, [run for run in runs if run.subject.has_asked])
    silent = {*(plan.spec.ignore or ()), *ignore}
    outcomes = [_outcome(run, ended, silent, deadline) for run, ended in zip(runs, under_way, strict=True)]
    return Report(outcomes, time.monotonic() - began)


def _refuse_if_nobody(account: Account, refused: list[RefusedError], needed: list[_Run]) -> None:
    """Raises RefusedError where one reason of ours keeps every question from an answer: credentials, region, connection."""
    for error in refused:
        if isinstance(error, AwsError) and error.is_expired:
            raise error
    nobody = [error for error in refused if not isinstance(error, AwsError)]
    if nobody and len(nobody) == len(needed):
        raise nobody[0]
    if needed and account.silence:
        raise RefusedError(account.silence)


def _wait_to_the_end(waiting: set[Future[None]], subject: Subject, console: Console | None) -> None:
    """Until all have ended; every few seconds, say how far the listings are."""
    due = time.monotonic() + PROGRESS_SECONDS
    while waiting:
        ended, waiting = wait(waiting, max(0.0, due - time.monotonic()), FIRST_COMPLETED)
        if _has_nobody(ended):
            return
        if time.monotonic() >= due:
            due = time.monotonic() + PROGRESS_SECONDS
            if console is not None and subject.progress:
                console.say(f"listed    {described(subject.progress.values())}")


def described(progress: Iterable[Progress]) -> str:
    """How many objects have been looked at, and what is left of it as far as that is known."""
    counts = list(progress)
    left = sum(total - done for done, total in counts if total is not None)
    unknown = sum(total is None for _, total in counts)
    words = [f"{sum(done for done, _ in counts):,} objects"]
    if left:
        words.append(f"{left:,} more are named by manifests")
    if unknown:
        words.append(
            f"{unknown} prefixes are not at their end yet" if unknown > 1 else "1 prefix is not at its end yet"
        )
    return "; ".join(words)


def _wait(waiting: set[Future[None]], account: Account, until: float, longer: float) -> None:
    """Until all have ended, or the time is over; so much longer, if by then there has been no answer at all, as on a busy
    machine, since the first one may be that there is nobody to ask."""
    while waiting:
        left = until - time.monotonic()
        if left <= 0:
            if account.answered or left <= -longer:
                return
            left = _LOOK_SECONDS
        ended, waiting = wait(waiting, left, FIRST_COMPLETED)
        if _has_nobody(ended):
            return


def _has_nobody(ended: set[Future[None]]) -> bool:
    """Whether there are no credentials, so that no other question has an answer either."""
    return any(isinstance(_refusal(run), CredentialsError) for run in ended)


def _refusal(ended: Future[None]) -> RefusedError | None:
    """Why a check could not be asked, if that is so. Raises what a check raised besides: a bug of ours."""
    error = ended.exception() if ended.done() else None
    if error is None or isinstance(error, RefusedError):
        return error
    raise error


def _outcome(run: _Run, ended: Future[None], silent: set[str], deadline: float | None) -> Outcome:
    spec, origin = run.subject.plan.spec, run.subject.plan.origin

    def problem(path: SpecPath, code: str, message: str) -> Problem:
        place = origin.place_of_key(path)
        location = spec.locate(place)
        if code == "name-taken":
            _, location = place_of_name(run.subject.request["TrainingJobName"], spec)
        return Problem(place, _printable(message), code, run.check.codes[code][0], location)

    problems = [problem(*each) for each in list(run.found) if each[1] not in silent]

    def in_order(told: list[Told]) -> list[Told]:
        placed = [(origin.place_of_key(path), _printable(text)) for path, text in list(told)]
        return sorted(placed, key=lambda each: (at.line, at.column) if (at := spec.locate(each[0])) else (0, 0))

    not_asked = in_order(run.subject.not_asked)
    if not ended.done() and deadline is not None:
        not_asked.append(((), f"no answer in {deadline:g} s"))
    elif (error := _refusal(ended)) is not None:
        not_asked.append(((), why_not(error)))
    notes = in_order(run.subject.notes)
    is_needed = run.subject.has_asked or bool(run.found)
    return Outcome(
        run.check.name, run.seconds if ended.done() else deadline or 0.0, problems, notes, not_asked, is_needed
    )


def _printable(text: str) -> str:
    """A text fit for a terminal: keys of S3, which are quoted in it, can hold any character."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
