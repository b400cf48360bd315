"""Problems of a spec, and the errors that end a command with their exit codes.

A `Problem` is data. Parsing, checks and planning collect all problems and raise them together, so that one run shows
everything that is wrong with a file. Only the command line prints them. A name that is misspelt in one gets the nearest known name.
"""

from __future__ import annotations

import errno
import json
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

MAX_REPORTED = 100  # problems; no user reads more at a time
_PLAIN = re.compile(r"[^\s.\[\]\"=]+")  # a key that `--set` takes without quotes
INTERRUPTED = 130  # as a shell reports a process ended by SIGINT
# Any command can also end with 1, a bug of ours, with 130 on Ctrl-C, and with 141 if its output is closed.
EXIT_CODES = {
    0: "done",
    1: "a bug in `launch`",
    2: "the spec or the arguments are wrong",
    3: "AWS or this machine refused it, or a check failed",
    4: "the training failed",
    5: "the job was stopped, or not submitted because you answered no; nothing was created then",
    INTERRUPTED: "Ctrl-C, a closed terminal, or `kill`, with which a local run ends with 5",
    141: "the output was closed while it was written, as by `launch list | head -1`",
}
SpecPath = tuple[str | int, ...]  # a place in a spec: ("channels", "train", "s3_uri")


@dataclass(frozen=True)
class Location:
    """A place in a file or in an option; counted from line 1 and character 1; both are 0 where there are no lines."""

    file: str
    line: int
    column: int
    text: str = field(default="", compare=False)  # the line itself

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line and not self.file.startswith("--") else self.file

    def quoted(self) -> str:
        """Return the line with a caret under the column; of a long line, only the part around it."""
        start = max(0, self.column - 60)
        shown = "".join(each if each.isprintable() else " " for each in self.text[start : start + 100])
        number = f"{self.line:>5} | "
        caret = f"{' ' * (len(number) - 2)}| {' ' * (self.column - 1 - start)}^"
        return f"{number}{shown}\n{caret}" if shown.strip() else ""


class Problem(NamedTuple):
    """One thing that is wrong, or probably wrong, with a spec."""

    path: SpecPath
    message: str  # what is wrong, why, and what to do
    code: str  # stable and documented, since users search for it
    severity: Literal["error", "warning"] = "error"
    location: Location | None = None
    meant: SpecPath = ()  # the place that a misspelt key probably means, so that it is not reported as missing too

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        key = dotted(self.path)
        where = f"{key}: " if key and str(self.location) != f"--set {key}" else ""
        return f"{place}{where}{self.message} [{self.code}]"

    def as_data(self) -> dict[str, Any]:
        """Return the problem for `--json`; with file, line and column if its location is known."""
        at = self.location
        location = {"file": at.file, "line": at.line, "column": at.column} if at else {}
        about = {"message": self.message, "code": self.code, "severity": self.severity}
        return {**location, "path": dotted(self.path), **about}


def dotted(path: SpecPath) -> str:
    """Return the path as text, in the form that `--set` takes: `channels.train.s3_uri`, `tags[2]`, `tags."cost.center"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += "." * bool(text) + (part if _PLAIN.fullmatch(part) else json.dumps(part, ensure_ascii=False))
    return text


def in_file_order(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: place_order(problem.location))


def place_order(location: Location | None) -> tuple[str, int, int]:
    return (location.file, location.line, location.column) if location else ("", 0, 0)


def without_repetitions(problems: list[Problem]) -> list[Problem]:
    """Return the problems without repetitions at one location, which aliases cause, and each unset variable once.

    Problems of different keys are kept, since all keys missing from a mapping are reported at the mapping.
    """
    first: dict[Any, Problem] = {}
    for problem in problems:
        place = problem.message if problem.code == "variable-not-set" else (problem.location, problem.path[-1:])
        first.setdefault((problem.code, place), problem)
    return list(first.values())


def limit_problems(problems: Sequence[Problem], left_out: int = 0) -> list[Problem]:
    """Return the first hundred problems; the last one's message counts the others, of which the caller has left out some."""
    left_out += max(0, len(problems) - MAX_REPORTED)
    *reported, last = problems[:MAX_REPORTED]
    if left_out:
        last = last._replace(message=f"{last.message}; {left_out:,} more problems are not shown, fix these first")
    return [*reported, last]


def first_names(names: Iterable[str], most: int = 5) -> str:
    """Return `a, b, c, d, e and 1,203 more`."""
    names = list(names)
    return ", ".join(names[:most]) + f" and {len(names) - most:,} more" * (len(names) > most)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that `name` probably means, ignoring case; None if no name is near.

    This is the only one that begins with it, ends with it after a dot or has the same letters, or else the most similar one.
    """
    names = list(names)
    begun = [known for known in names if len(name) > 1 and known.casefold().startswith(name.casefold())]
    if len(begun) == 1:
        return begun[0]
    ended = [known for known in names if known.casefold().endswith(f".{name.casefold()}")]
    if len(ended) == 1:
        return ended[0]
    same_letters = [known for known in names if sorted(known.casefold()) == sorted(name.casefold())]
    if len(same_letters) == 1:
        return same_letters[0]
    import difflib  # only mistakes need it

    by_folded = {known.casefold().replace("_", ""): known for known in names}
    found = difflib.get_close_matches(name.casefold().replace("_", "").replace("-", ""), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?`, or an empty text if no name is near."""
    found = nearest(name, names)
    return f"; did you mean {found}?" if found else ""


def has_folder(path: str | Path) -> bool:
    """Return whether a folder is there. Raises OSError if it cannot be seen, which Path.is_dir hides since Python 3.14."""
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def did_you_mean_path(path: str | Path, fits: Callable[[Path], bool] = Path.exists) -> str:
    """Return `; did you mean X?` for a path that does not exist, or an empty text if no file beside it is near.

    Suffixes are not compared, so `job.yml` finds `job.yaml`. Only files that `fits` accepts are suggested.
    """
    path = Path(path)
    try:
        names = {entry.stem: entry.name for entry in path.parent.iterdir() if fits(entry)}
    except OSError:  # without the folder's list there is no hint
        return ""
    found = nearest(path.stem, names)
    return f"; did you mean {names[found]}?" if found else ""


class LaunchError(Exception):
    """An error that ends the command with one message. Each subclass is a cause; the exit code is 3 unless it sets another."""

    exit_code = 3
    remedy = ""  # what to do, which is printed after the message if that ends the command


class ProblemsError(LaunchError):
    """An error of one or more problems, each with its place, in the file's order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class SpecError(ProblemsError):
    """The spec is wrong; `problems` holds every problem found."""

    exit_code = 2


class AccountError(ProblemsError):
    """The spec is right, but the account cannot run it: a check of the account found a problem, or AWS refused the request."""


class RefusedError(LaunchError):
    """Something outside the spec prevents the command: a missing directory, an unreachable store, a refusal by AWS."""


class InputError(RefusedError):
    """An input file cannot be read, or does not hold what it should."""

    exit_code = 2


def unreadable(
    path: str | Path, error: OSError, named: str = "", fits: Callable[[Path], bool] = Path.exists
) -> InputError:
    """Return the error for a file that cannot be read, with the nearest name that `fits` if it does not exist."""
    near = did_you_mean_path(path, fits) if isinstance(error, FileNotFoundError) else ""
    remedy = near or "; correct the path or its permissions"
    return InputError(f"{path}{named}: cannot be read: {error.strerror}{remedy}")


def no_folder(path: str | Path) -> InputError:
    return InputError(f"{path}: there is no such folder{did_you_mean_path(path, Path.is_dir) or '; correct the path'}")


class TrainingFailedError(LaunchError):
    """The training ran and failed."""

    exit_code = 4


class StoppedError(LaunchError):
    """The training was stopped before its end, by its time limit or a signal, or the user declined to start it."""

    exit_code = 5
