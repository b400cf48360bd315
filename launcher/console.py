"""Output for people: lines, warnings and progress, with colours and progress bars only on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from launcher.errors import Location, Problem, dotted
from launcher.masking import without_secrets

# None lets click decide by whether it writes to a terminal; NO_COLOR overrides that (https://no-color.org).
COLOUR = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None

# ECMA-48: control sequences (CSI ... final), strings for the terminal (OSC, DCS, ... up to ST or BEL), and single controls.
# A string must end in its line, and has no beginning of another: without its end, only its first bytes are removed.
_CONTROLS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\n\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # as click removes it if there is no terminal
_RESET = "\x1b[0m"
_NOT_IN_JSON = re.compile(r"[\x7f-\x9f]")  # controls that JSON allows in texts
_SPACE = {"\r": " ", "\n": " "}
_MOST_WARNINGS = 3  # of one code, that are shown in full
_MOST_KEYS = 8  # of others with this code
_WIPE_LINE = "\r\x1b[K"
# What a workflow command of GitHub Actions escapes (actions/toolkit, packages/core/src/command.ts).
_IN_MESSAGES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES = _IN_MESSAGES | str.maketrans({":": "%3A", ",": "%2C"})


class Console:
    """The output of one command. A job's lines go to stdout, ours to stderr; with `as_json`, all go to stderr.

    `says_on` is the stream of what is said if that is the command's result, and no comment on it.
    """

    def __init__(self, *, as_json: bool = False, says_on: Any = None) -> None:
        self._says_on = says_on
        self._out = sys.stderr if as_json else sys.stdout
        self._lock = threading.Lock()
        self._bars: Any = None  # rich's Progress while one is shown
        self._state: tuple[str, str] | None = None  # the host whose progress bar is shown, and the bar
        self._is_drawn = False
        self._redraws = self._out.isatty() and os.environ.get("TERM") != "dumb"
        self._warned: set[str] = set()

    def say(self, text: str = "", colour: str | None = None) -> None:
        with self._lock:
            self._write(f"{_styled(text, colour)}\n", self._says_on or sys.stderr)

    def warn(self, text: str) -> None:
        """Print a warning, but each text only once."""
        with self._lock:
            if text in self._warned:
                return
            self._warned.add(text)
            self._write(f"{_styled(f'warning: {text}', 'yellow')}\n", sys.stderr)

    def log(self, prefix: str, lines: Sequence[str], colour: str, state: str = "") -> None:
        """Print lines of a host's output in one write, each after the coloured `prefix`, which names the host.

        `state` is what a progress bar of the job shows now. On a terminal it is shown below the lines until the host's next call.
        """
        prefix = _styled(prefix, colour)
        with self._lock:
            if state and self._redraws:
                import shutil  # takes 2 ms, since it imports compressors

                width = shutil.get_terminal_size().columns - len(click.unstyle(prefix)) - 2
                self._state = (prefix, f"{prefix} {plain(state)[:width]}")
            elif self._state and self._state[0] == prefix:
                self._wipe()
                self._state = None
            self._write("".join(f"{prefix} {without_controls(line)}\n" for line in lines), self._out)

    def _write(self, text: str, stream: Any) -> None:
        """Write whole lines, above the state of a progress bar if one is shown. The caller holds the lock."""
        if self._bars is not None and stream.isatty():
            from rich.text import Text

            self._bars.console.print(Text.from_ansi(text), soft_wrap=True, end="")
            return
        self._wipe()
        if text:
            click.echo(text, file=stream, nl=False, color=COLOUR)
        if self._state:
            click.echo(self._state[1], file=self._out, nl=False, color=COLOUR)
            self._is_drawn = True

    def _wipe(self) -> None:
        if self._is_drawn:
            click.echo(_WIPE_LINE, file=self._out, nl=False, color=True)
            self._is_drawn = False

    @contextmanager
    def progress(
        self, title: str, *, counted: bool = True, total: int | None = None
    ) -> Iterator[Callable[[int], None]]:
        """Show that something is running, and for how long; if `counted`, also bytes, of a `total` if that is known.

        Without a terminal, print one line at the end if it took longer than 2 s.

        Yields:
            A function that takes the number of bytes done since the last call. Any thread may call it.
        """
        if not sys.stderr.isatty() or self._out is sys.stderr:
            begun, done = time.monotonic(), list[int]()
            yield done.append
            if (seconds := time.monotonic() - begun) > 2:
                self.say(f"{title}: done in {seconds:.1f} s" + (f", {human_bytes(sum(done))}" if done else ""))
            return
        from rich import progress as bars

        columns = [
            bars.SpinnerColumn(),
            bars.TextColumn("{task.description}", markup=False),
            *([bars.BarColumn()] if total else []),
            *([bars.FileSizeColumn(), bars.TransferSpeedColumn()] if counted else []),
            bars.TimeElapsedColumn(),
        ]
        with bars.Progress(*columns, console=rich_console(sys.stderr), transient=True) as shown:
            task = shown.add_task(plain(title), total=total)
            self._bars = shown
            try:
                yield lambda count: shown.advance(task, count)
            finally:
                self._bars = None


def without_controls(text: str) -> str:
    """Return a job's line with its colours, which end with it, but without controls that move the cursor or clear the screen."""
    if text.isprintable():
        return text
    kept = _CONTROLS.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else _SPACE.get(found[0], ""), text)
    last = kept.rfind("\x1b")
    return kept if last < 0 or kept.startswith((_RESET, "\x1b[m"), last) else kept + _RESET


def plain(text: str) -> str:
    """Return a text without escape sequences and controls other than tabs and line feeds: what is quoted may hold any."""
    if text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: found[0] if found[0] == "\n" else _SPACE.get(found[0], ""), text)


def _styled(text: str, colour: str | None, **style: Any) -> str:
    return click.style(plain(text), fg=colour, **style) if colour or style else plain(text)


def json_text(data: Any, **settings: Any) -> str:
    """Return JSON with letters of all languages as they are, and all controls escaped; `settings` are those of json.dumps."""
    text = json.dumps(data, ensure_ascii=False, **settings)
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def last_state(line: bytes) -> bytes:
    """Return what a line shows last if carriage returns overwrite it, as in progress bars."""
    return next((part for part in reversed(line.split(b"\r")) if part.strip()), b"")


def rich_console(stream: Any) -> Any:
    """Return rich's console for a stream; if colours are off, it has no style at all, not even bold."""
    from rich.console import Console as RichConsole

    return RichConsole(file=stream, color_system=None if COLOUR is False else "auto")


def say(text: str, colour: str | None = None) -> None:
    """Print one line to stderr."""
    click.echo(_styled(text, colour), err=True, color=COLOUR)


def print_line(text: str, colour: str | None = None, *, keep_colours: bool = False, **style: Any) -> None:
    """Print a line of a command's result to stdout, in a style of click's; `keep_colours` keeps the colours that it has."""
    click.echo(without_controls(text) if keep_colours else _styled(text, colour, **style), color=COLOUR)


def show_error(message: str) -> None:
    _say_severe("error", message, "launch")


def _say_severe(severity: str, message: str, title: str, at: Location | None = None) -> None:
    """Print an error or a warning; in GitHub Actions as the annotation that stands for it there."""
    text = _annotation(severity, message, title, at) if in_actions() else f"{severity}: {message}"
    say(text, "yellow" if severity == "warning" else "red")


def in_actions() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _annotation(severity: str, message: str, title: str, at: Location | None) -> str:
    """Return the workflow command that shows a message as an annotation, at its line if it is in a file of the repository."""
    place = {}
    if at and at.line and Path(at.file).is_file():
        file = os.path.relpath(at.file, os.environ.get("GITHUB_WORKSPACE") or ".")
        place = {"file": file, "line": str(at.line), "col": str(at.column)}
    properties = ",".join(
        f"{name}={value.translate(_IN_PROPERTIES)}" for name, value in {**place, "title": title}.items()
    )
    return f"::{severity} {properties}::{message.translate(_IN_MESSAGES)}"


def show_problem(problem: Problem) -> None:
    """Print a problem in one line, and below it the line of the file with a mark."""
    _say_severe(problem.severity, str(problem), problem.code, problem.location)
    at = problem.location
    if at and (quoted := replace(at, text=without_secrets(at.text)).quoted()):
        say(quoted)


def show_problems(problems: Iterable[Problem]) -> None:
    """Print problems. Of the warnings with one code, only the first three are whole; the others are one line with their keys."""
    seen: Counter[str] = Counter()
    rest: dict[str, list[str]] = {}
    for problem in problems:
        seen[problem.code] += 1
        if problem.severity == "warning" and seen[problem.code] > _MOST_WARNINGS:
            rest.setdefault(problem.code, []).append(dotted(problem.path) or str(problem.location or "the request"))
        else:
            show_problem(problem)
    for code, places in rest.items():
        shown = ", ".join(places[:_MOST_KEYS]) + (
            f" and {len(places) - _MOST_KEYS} more" if places[_MOST_KEYS:] else ""
        )
        say(f"warning: {len(places)} more at {shown}; `launch --explain {code}` explains them [{code}]", "yellow")


def shown_path(path: str | Path) -> str:
    """Return a path as a user would type it here: relative if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


def human_bytes(count: float) -> str:
    """Return `1.5 MB`: decimal units, as AWS bills."""
    for unit in ("byte", "kB", "MB", "GB"):
        if count < 1000:
            return counted(round(count), unit) if unit == "byte" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(count: int, noun: str) -> str:
    """Return `1 line`, `2 lines` or `3,000 classes`."""
    return f"{count:,} {noun}" + ("es" if noun.endswith("s") else "s") * (count != 1)


def timestamp(moment: datetime) -> str:
    """Return a moment as every command prints it, in this machine's zone: `2026-11-27T10:15:02+01:00`."""
    return moment.astimezone().isoformat(timespec="seconds")


def json_timestamp(moment: datetime) -> str:
    """Return a moment as all JSON has it, in UTC, so that texts sort by time: `2026-11-27T09:15:02.123+00:00`."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds")


def duration(seconds: float) -> str:
    """Return `45 s`, `3 min 20 s`, `1 h 5 min` or `2 d 3 h`: the two largest units."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])
