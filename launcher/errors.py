"""Problems and errors: what is wrong, where, why and what to do; and the exit code that each kind of error ends with.

A `Problem` is data. Parsing, checks and planning collect as many as there are and raise them together, so that one run
shows all that is wrong with a file. Only the command line prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MAX_TOLD = 100  # problems; nobody reads more at a time
SpecPath = tuple[str | int, ...]  # a place in a spec: ("channels", "train", "s3_uri")


@dataclass(frozen=True)
class Location:
    """A place in a file or in an option; line and column count from 1, columns in characters."""

    file: str
    line: int
    column: int
    text: str = field(default="", compare=False)  # the line itself

    def __str__(self) -> str:
        return self.file if self.file.startswith("--") else f"{self.file}:{self.line}:{self.column}"

    def quoted(self) -> str:
        """The line with a mark under the place; of a long line, the part around it."""
        start = max(0, self.column - 60)
        shown = self.text[start : start + 100].replace("\t", " ")
        number = f"{self.line:>5} | "
        return (
            f"{number}{shown}\n{' ' * (len(number) - 2)}| {' ' * (self.column - 1 - start)}^" if shown.strip() else ""
        )


class Problem(NamedTuple):
    """One thing that is wrong, or probably wrong, with a spec."""

    path: SpecPath
    message: str  # what is wrong, why, and what to do
    code: str  # stable and documented: people search for it
    severity: Literal["error", "warning"] = "error"
    location: Location | None = None
    meant: SpecPath = ()  # for a misspelt key, the place that was probably meant: that it is missing is no news then

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        where = f"{dotted(self.path)}: " if self.path else ""
        return f"{place}{where}{self.message} [{self.code}]"

    def as_data(self) -> dict[str, Any]:
        """The same for `--json`; file, line and column where it has a place."""
        at = self.location
        location = {"file": at.file, "line": at.line, "column": at.column} if at else {}
        about = {"message": self.message, "code": self.code, "severity": self.severity}
        return {**location, "path": dotted(self.path), **about}


def dotted(path: SpecPath) -> str:
    """The path as people write it: `channels.train.s3_uri`, `tags[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def in_file_order(problems: list[Problem]) -> list[Problem]:
    """The problems as a reader of the file meets them; those of several files one file after the other."""
    return sorted(problems, key=lambda problem: place_order(problem.location))


def place_order(location: Location | None) -> tuple[str, int, int]:
    """What to sort places by."""
    return (location.file, location.line, location.column) if location else ("", 0, 0)


def cut(problems: Sequence[Problem], left_out: int = 0) -> list[Problem]:
    """The first hundred of the problems, of which the last says how many are left out, with `left_out` more besides."""
    left_out += max(0, len(problems) - MAX_TOLD)
    *told, last = problems[:MAX_TOLD]
    if left_out:
        last = last._replace(message=f"{last.message}; {left_out:,} more problems are left out, mend these first")
    return [*told, last]


class LaunchError(Exception):
    """Ends the command with one clear message. Children differ by cause, and so do their exit codes."""

    exit_code = 3


class ProblemsError(LaunchError):
    """Ends the command with one or more problems, each with its place, in the file's order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class SpecError(ProblemsError):
    """The spec is wrong; `problems` holds every problem found."""

    exit_code = 2


class AccountError(ProblemsError):
    """The spec is right, but its account cannot run it: what preflight found, or why AWS refused the request."""

    exit_code = 3


class RefusedError(LaunchError):
    """Something outside the spec stands in the way: a missing directory, an unreachable store, AWS's refusal."""

    exit_code = 3


class InputError(RefusedError):
    """A file that was given cannot be read, or is not what it should be."""

    exit_code = 2


class TrainingFailedError(LaunchError):
    """The training ran and failed."""

    exit_code = 4


class StoppedError(LaunchError):
    """The training was stopped before its end, by its time limit or by a signal; or a person said no before its start."""

    exit_code = 5
