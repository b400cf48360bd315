"""The report of the account checks: the result of each check, problems, notes, and questions without an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from launcher.account.check import Note
from launcher.errors import Problem, dotted, in_file_order

Status = Literal["passed", "warning", "failed", "not-asked", "not-needed"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    check: str
    seconds: float
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
        """Return the result for `--json`."""
        data: dict[str, Any] = {"check": self.check, "status": self.status, "seconds": round(self.seconds, 2)}
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
        """The report's last line."""
        return f"<Report: {self.lines()[-1]}>"

    @property
    def problems(self) -> Sequence[Problem]:
        """All problems, in the order of the spec file."""
        return in_file_order([problem for result in self.results for problem in result.problems])

    @property
    def errors(self) -> Sequence[Problem]:
        """Problems with which the job would surely fail; the job can be submitted if there are none."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def notes(self) -> Sequence[Note]:
        """Facts worth knowing, each with its path in the spec."""
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
