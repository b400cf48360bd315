"""Run all checks at the same time, within a time limit, and report their results.

A check that AWS does not answer in time is reported as not asked and blocks nothing. Missing credentials or a missing region
raise an error, since the submission would fail in the same way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, replace
from typing import Any, Literal

from launcher.account import CHECKS
from launcher.account.check import Check, Note, Subject, why_not
from launcher.aws.code_upload import expect_owners
from launcher.aws.refusals import REMEDY
from launcher.aws.session import Account, AwsError, CredentialsError
from launcher.aws.threads import start
from launcher.console import Console
from launcher.errors import Problem, RefusedError, dotted, in_file_order, place_order
from launcher.planning import Plan
from launcher.request.view import Draft

_POLL_SECONDS = 0.1
PROGRESS_SECONDS = 10.0
DEADLINE = 5.0  # seconds, unless prefixes are listed to their ends
Status = Literal["passed", "warning", "failed", "not-asked", "not-needed"]


@dataclass(frozen=True)
class CheckResult:
    check: str
    problems: Sequence[Problem]
    notes: Sequence[Note]
    not_asked: Sequence[Note]  # questions without an answer, and why
    is_needed: bool  # whether the job has anything for it to check

    @property
    def status(self) -> Status:
        """The worst status that applies."""
        severities = {problem.severity for problem in self.problems}
        if severities:
            return "failed" if "error" in severities else "warning"
        if self.not_asked:
            return "not-asked"
        return "passed" if self.is_needed else "not-needed"

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"check": self.check, "status": self.status}
        if self.problems:
            data["codes"] = sorted({problem.code for problem in self.problems})
        if self.not_asked:
            data["not_asked"] = [_as_data(each) for each in self.not_asked]
        return data


@dataclass(frozen=True, repr=False)
class Report:
    """The results of all checks."""

    results: Sequence[CheckResult]
    seconds: float

    def __repr__(self) -> str:
        return f"<Report: {self.lines()[-1]}>"

    @property
    def problems(self) -> Sequence[Problem]:
        """What the checks found, errors and warnings, in the order of the spec."""
        return in_file_order([problem for result in self.results for problem in result.problems])

    @property
    def errors(self) -> Sequence[Problem]:
        """Problems with which the job would surely fail; the job can be submitted if there are none."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def notes(self) -> Sequence[Note]:
        """Facts worth knowing that are no problems, each with its place in the spec."""
        return [note for result in self.results for note in result.notes]

    @property
    def not_asked(self) -> Sequence[tuple[str, str]]:
        """Pairs of a check's name and why one of its questions has no answer."""
        return [(result.check, _line(each)) for result in self.results for each in result.not_asked]

    def lines(self) -> list[str]:
        """Return the notes, the unanswered questions and a summary as text lines; the caller prints the problems."""
        lines = [_line(note) for note in self.notes]
        for result in self.results:
            if result.not_asked:
                more = f" (and {len(result.not_asked) - 1} more)" if len(result.not_asked) > 1 else ""
                lines.append(f"not asked: {result.check}: {_line(result.not_asked[0])}{more}")
        counts = Counter(result.status for result in self.results)
        summary = ", ".join(f"{count} {status.replace('-', ' ')}" for status, count in sorted(counts.items()))
        return [*lines, f"{len(self.results)} checks in {self.seconds:.1f} s: {summary}"]

    def as_data(self) -> dict[str, Any]:
        """Return the report for `--json`."""
        return {
            "checks": [result.as_data() for result in self.results],
            "notes": [_as_data(note) for note in self.notes],
            "problems": [problem.as_data() for problem in self.problems],
            "seconds": round(self.seconds, 2),
        }


def _line(note: Note) -> str:
    path, text = note
    return f"{dotted(path)}: {text}" if path else text


def _as_data(note: Note) -> dict[str, str]:
    path, text = note
    return {"path": dotted(path), "message": text}


class _Run:
    """A check that runs in its own thread; its problems so far count even if it does not finish."""

    def __init__(self, check: Check, subject: Subject) -> None:
        self.check, self.subject, self.found = check, subject, list[Problem]()
        self.future = start(self._run)

    def _run(self) -> None:
        for each in self.check.problems(self.subject):
            self.found.append(each)

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
    accepts, no region, or a wrong endpoint.
    """
    account.require_credentials()  # before the deadline counts, which a busy machine may need for that
    account.client("s3")  # every job stores its outputs there, so settings of S3 that boto3 refuses are one error
    expect_owners(plan, account)
    began = time.monotonic()
    subject = subject_of(plan, account, full=deadline is None)
    runs = [_Run(check, replace(subject, notes=[], not_asked=[])) for check in checks]
    _wait(runs, account, deadline, console)
    _refuse_if_none_answered(account, runs)
    ignored = {*(plan.spec.ignore or ()), *ignore}
    results = [_result(plan, run, ignored, deadline) for run in runs]
    return Report(results, time.monotonic() - began)


def subject_of(plan: Plan, account: Account, *, full: bool = False) -> Subject:
    return Subject(Draft(plan.spec, plan.request, origin=plan.origin), account, plan.code_uri, full)


def _wait(runs: Sequence[_Run], account: Account, deadline: float | None, console: Console | None) -> None:
    """Wait until all checks have ended, there are no credentials, or the deadline is over.

    The deadline for the first answer begins with the first call, which a busy machine sends late. Without a deadline, print the
    listings' progress.
    """
    began = time.monotonic()
    due = PROGRESS_SECONDS
    waiting = {run.future for run in runs}
    while waiting:
        _, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
        if any(isinstance(run.refusal, CredentialsError) for run in runs):
            return
        seconds = time.monotonic() - began
        asked = time.monotonic() - (account.asked_at or time.monotonic())
        if deadline is not None and seconds >= deadline and (account.answered or asked >= deadline):
            return
        if deadline is None and seconds >= due and console is not None:
            due = seconds + PROGRESS_SECONDS
            looked_at = sum(runs[0].subject.answers.looked_at.copy().values())
            console.say(f"listed    {looked_at:,} objects so far")


def _refuse_if_none_answered(account: Account, runs: Sequence[_Run]) -> None:
    """Raise RefusedError if AWS does not accept the credentials, or has answered nothing."""
    refused = [error for run in runs if (error := run.refusal) is not None]
    for error in refused:
        if isinstance(error, AwsError) and error.is_unauthenticated:
            raise error
    asked = [run for run in runs if run.subject.has_asked]
    if asked and not account.answered:
        reasons = [
            *map(str, refused),
            *(why for run in asked for _, why in run.subject.not_asked),
            f"no answer; {REMEDY}",
        ]
        raise RefusedError(f"AWS cannot be reached: {reasons[0]}")


def _result(plan: Plan, run: _Run, ignored: set[str], deadline: float | None) -> CheckResult:
    spec, origin = plan.spec, plan.origin

    def placed(problem: Problem) -> Problem:
        place = origin.place(problem.path)
        message = _printable(spec.variables.masked(problem.message, place))
        return problem._replace(path=place, message=message, location=problem.location or spec.locate(place))

    def in_order(notes: Sequence[Note]) -> list[Note]:
        placed = [(origin.place(path), _printable(text)) for path, text in list(notes)]
        return sorted(placed, key=lambda note: place_order(spec.locate(note[0])))

    # The lists are copied first, since a check that has not ended may still append to them.
    problems = [placed(each) for each in list(run.found) if each.code not in ignored]
    not_asked = in_order(run.subject.not_asked)
    if not run.future.done() and deadline is not None:
        not_asked.append(((), f"no answer in {deadline:g} s"))
    elif (error := run.refusal) is not None:
        not_asked.append(((), why_not(error)))
    elif run.subject.refusal is not None and not run.subject.has_answer:
        not_asked.append(((), why_not(run.subject.refusal)))
    is_needed = run.subject.has_asked or bool(run.found)
    return CheckResult(run.check.name, problems, in_order(run.subject.notes), not_asked, is_needed)


def _printable(text: str) -> str:
    """Return the text with unprintable characters escaped: the S3 keys it quotes can hold any character."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
