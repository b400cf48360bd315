"""Follow a job to its end: show its statuses, lines and metrics, then report how it ended.

One thread works in rounds: describe the job every few seconds, read its hosts' new lines, print those that are in order.
Temporary errors of AWS and lost connections are retried for as long as they last, since the job does not depend on us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from launcher.aws.session import Account, AwsError
from launcher.console import Console, last_state
from launcher.errors import RefusedError
from launcher.jobs.lines import (
    AGAIN,
    SETTLING_SECONDS,
    JobLines,
    Line,
    Selection,
    check_host,
    creation_of,
    last_lines,
)
from launcher.jobs.lookup import describe, tags_of, tried
from launcher.jobs.metrics import Metrics, plot
from launcher.jobs.outcome import ENDED, Outcome, Statuses
from launcher.jobs.waits import LoopWaits, in_words

DESCRIBE_SECONDS = 5.0
ROUND_SECONDS = 1.0
_LONG_AGO_SECONDS = 180.0  # after its end, no more lines of a job appear
_COLOURS = ("cyan", "magenta", "green", "blue", "yellow")


class View(NamedTuple):
    logs: bool = True  # if not, only its statuses
    selection: Selection = Selection()
    on_line: Callable[[Line], None] | None = None  # receives the lines instead of the console
    plot: Path | None = None  # where the metrics are drawn at the end
    stop: Callable[[], None] | None = None  # stops the job after Ctrl-C; otherwise it continues
    settling: float = SETTLING_SECONDS  # seconds for which lines are held, since earlier ones may appear
    on_round: Callable[[], None] = lambda: None  # called first and every second; may raise KeyboardInterrupt


def follow(
    account: Account, name: str, console: Console, view: View | None = None, *, service_job: str = ""
) -> Outcome:
    """Show a job until it has ended. Ctrl-C leaves the job running and returns an outcome with `exit_code` 130.

    `service_job` is its ID if it is in a queue and that is known. Without a `view`, everything is shown. Raises RefusedError.
    """
    view, named = view or View(), f"{name}{account.options}"
    following, interrupted = _Following(account, name, console, view, service_job), False
    resume = f"`launch logs {named} --follow`"
    try:
        following.to_the_end()
    except KeyboardInterrupt:
        interrupted = following.status not in ENDED
    except AwsError as error:
        raise RefusedError(f"{error}; the job is not affected: resume with {resume}") from None
    outcome = following.outcome(interrupted=interrupted)
    if not interrupted:
        outcome.show(console)
    elif view.stop:
        view.stop()
    else:
        console.say(f"{name} continues; {resume} resumes following it, `launch stop {named}` stops it", "yellow")
    if view.plot:
        plot({name: following.read.metrics.panels()}, view.plot, console)
    return outcome


def look_at(account: Account, name: str, console: Console) -> Outcome:
    """Return a job's state now, with what the last lines of its hosts show: metrics, waits, the cause of a failure.

    Raises RefusedError.
    """
    description = describe(account, name)
    lines = last_lines(account, description)
    read = ReadLines(description, console)
    for line in lines:
        read.note(line)
    explaining = lines if description["TrainingJobStatus"] == "Failed" else ()
    description["Tags"] = tags_of(account, description, console.warn)  # of which DescribeTrainingJob has none
    return Outcome(description, read.metrics.last, explaining, waits=read.waits.worst())


class ReadLines:
    """What a job's lines show: printed as `algo-1 | ...` in a colour for each host, with its metrics and waits."""

    def __init__(
        self, description: Mapping[str, Any], console: Console, on_line: Callable[[Line], None] | None = None
    ) -> None:
        definitions = description.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
        self.metrics = Metrics(definitions, console.warn)
        self.waits = LoopWaits()
        self.count = 0
        self._console, self._on_line = console, on_line or self._print
        self._colours: dict[str, str] = {}

    def show(self, line: Line) -> None:
        self._on_line(line)
        self.note(line)

    def note(self, line: Line) -> None:
        self.metrics.note(line.timestamp, line.host, line.message)
        self.waits.note(line.message)
        self.count += 1

    def print(self, host: str, messages: Sequence[str], state: str = "", *, verbose: bool = False) -> None:
        """Print messages of a host, and the state of its progress bar; records of waits as sentences, unless `verbose`."""
        colour = self._colours.setdefault(host, _COLOURS[len(self._colours) % len(_COLOURS)])
        shown = messages if verbose else list(map(in_words, messages))
        self._console.log(f"{host} |", shown, colour, state)

    def _print(self, line: Line) -> None:
        self.print(line.host, [last_state(line.message.encode("utf-8", "replace")).decode().rstrip("\n")])


class _Following:
    def __init__(self, account: Account, name: str, console: Console, view: View, service_job: str) -> None:
        self._account, self._name, self._console, self._view = account, name, console, view
        self._service_job = service_job  # its ID, if the job is in a queue
        self._description: Mapping[str, Any] = {"TrainingJobName": name}
        self.read = ReadLines({}, console, view.on_line)
        self._lines: JobLines | None = None
        self._attempt = ""  # the training job whose lines are read
        self._statuses = Statuses(console.say)

    @property
    def status(self) -> str:
        """TrainingJobStatus; empty before the job was described."""
        return str(self._description.get("TrainingJobStatus", ""))

    def to_the_end(self) -> None:
        self._view.on_round()
        while not self._described():
            time.sleep(ROUND_SECONDS)
            self._view.on_round()
        check_host(self._view.selection.host, self._description)
        self.read = ReadLines(self._description, self._console, self._view.on_line)
        described = time.monotonic()
        self._show_status()
        while self.status not in ENDED:
            self._round()
            self._view.on_round()
            time.sleep(ROUND_SECONDS)
            if time.monotonic() >= described + DESCRIBE_SECONDS:
                described = time.monotonic()
                self._described()
                self._show_status()
        self._drain()

    def outcome(self, *, interrupted: bool) -> Outcome:
        """Return the job's state, with the lines that explain a failure: those that `launch status` reads, not those shown."""
        lines = last_lines(self._account, self._description) if self.status == "Failed" else ()
        return Outcome(self._description, self.read.metrics.last, lines, interrupted, self.read.waits.worst())

    def _described(self) -> bool:
        found = tried(self._console.warn, describe, self._account, self._name, self._service_job)
        if found is not None:
            self._description = found
            self._service_job = found.get("ServiceJob", {}).get("JobId", "")
        return found is not None

    def _show_status(self) -> None:
        self._turn_to_attempt()
        self._statuses.show(self._description)

    def _turn_to_attempt(self) -> None:
        """Read the lines of the training job that is described now: each attempt of a queued job is one of its own."""
        name = str(self._description["TrainingJobName"])
        is_denied = bool(self._attempt) and self._lines is None
        if not self._view.logs or is_denied or name == self._attempt or "TrainingJobArn" not in self._description:
            return
        if self._lines is not None:
            self._round()
            self._show(self._lines.remaining())
        selection = self._view.selection._replace(created=creation_of(self._description))
        self._attempt, self._lines = name, JobLines(self._account, name, selection, self._view.settling)

    def _round(self) -> bool:
        """Read and show new lines, and return whether AWS answered; stop reading them if it denies it."""
        if self._lines is None:
            return True
        try:
            self._show(self._lines.new())
        except AwsError as error:
            if not error.is_denied and not error.is_passing:
                raise
            self._console.warn(f"{error}; {'only its statuses are shown' if error.is_denied else AGAIN}")
            self._lines = None if error.is_denied else self._lines
            return error.is_denied
        return True

    def _drain(self) -> None:
        """Show the remaining lines, until no new one has appeared for a while, not even a late one."""
        begun, ended = time.monotonic(), self._description.get("TrainingEndTime")
        is_old = ended is not None and (datetime.now(timezone.utc) - ended).total_seconds() >= _LONG_AGO_SECONDS
        if self._lines is None and not is_old:
            time.sleep(self._view.settling)  # until the last lines, which explain a failure, can be read
        try:
            while self._lines is not None:
                is_read, lines = self._round(), self._lines
                quiet = time.monotonic() - max(begun, lines.last_new if lines else 0.0)
                if is_read and (is_old or quiet >= self._view.settling):
                    break
                time.sleep(min(ROUND_SECONDS, self._view.settling / 2))
        except AwsError as error:  # the job's result is known, and matters more
            self._console.warn(f"{error}; the job's last lines may be missing")
        if self._lines is not None:
            self._show(self._lines.remaining())

    def _show(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.read.show(line)
