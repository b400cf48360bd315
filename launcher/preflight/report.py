"""What a preflight found: the checks and how each went, the problems, what is worth knowing, what could not be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from launcher.errors import Problem, dotted, in_file_order
from launcher.preflight.check import Told

Status = Literal["passed", "warning", "failed", "not-asked", "not-needed"]


@dataclass(frozen=True)
class Outcome:
    """How one check went."""

    check: str
    seconds: float
    problems: Sequence[Problem]
    notes: Sequence[Told]
    not_asked: Sequence[Told]  # what had no answer, and why
    is_needed: bool  # whether the job has anything for it to look at

    @property
    def status(self) -> Status:
        """The worst that can be said of it."""
        severities = {problem.severity for problem in self.problems}
        if severities:
            return "failed" if "error" in severities else "warning"
        if self.not_asked:
            return "not-asked"
        return "passed" if self.is_needed else "not-needed"

    def as_data(self) -> dict[str, Any]:
        """The same for `--json`."""
        data: dict[str, Any] = {"check": self.check, "status": self.status, "seconds": round(self.seconds, 2)}
        if self.problems:
            data["codes"] = sorted({problem.code for problem in self.problems})
        if self.not_asked:
            data["not_asked"] = [_told(each) for each in self.not_asked]
        return data


@dataclass(frozen=True)
class Report:
    """What all checks found together."""

    outcomes: Sequence[Outcome]
    seconds: float

    @property
    def problems(self) -> Sequence[Problem]:
        """All that is wrong, as a reader of the spec meets it."""
        return in_file_order([problem for outcome in self.outcomes for problem in outcome.problems])

    @property
    def errors(self) -> Sequence[Problem]:
        """What the job would surely fail of; where there is none, it can be sent."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def notes(self) -> Sequence[Told]:
        """What is worth knowing, with its places in the spec."""
        return [note for outcome in self.outcomes for note in outcome.notes]

    @property
    def not_asked(self) -> Sequence[tuple[str, str]]:
        """Each check that had no answer to something, and why; nothing is known of it, good or bad."""
        return [(outcome.check, _line(each)) for outcome in self.outcomes for each in outcome.not_asked]

    def lines(self) -> list[str]:
        """For people: the facts, what could not be asked, and a sum. The problems are shown by whoever shows problems."""
        lines = [_line(note) for note in self.notes]
        for outcome in self.outcomes:
            if outcome.not_asked:
                more = f" (and {len(outcome.not_asked) - 1} more)" if len(outcome.not_asked) > 1 else ""
                lines.append(f"not asked: {outcome.check}: {_line(outcome.not_asked[0])}{more}")
        counts: dict[str, int] = {}
        for outcome in self.outcomes:
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
        said = ", ".join(f"{count} {status.replace('-', ' ')}" for status, count in sorted(counts.items()))
        return [*lines, f"{len(self.outcomes)} checks in {self.seconds:.1f} s: {said}"]

    def as_data(self) -> dict[str, Any]:
        """The same for `--json`."""
        return {
            "checks": [outcome.as_data() for outcome in self.outcomes],
            "notes": [_told(note) for note in self.notes],
            "problems": [problem.as_data() for problem in self.problems],
            "seconds": round(self.seconds, 2),
        }


def _line(told: Told) -> str:
    path, text = told
    return f"{dotted(path)}: {text}" if path else text


def _told(told: Told) -> dict[str, str]:
    path, text = told
    return {"path": dotted(path), "message": text}
