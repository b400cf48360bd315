"""Follow a job to its end: show its statuses, lines and metrics, then report how it ended.

One thread works in rounds: describe the job every few seconds, read its hosts' new lines, print those that are in order.
Temporary errors of AWS and lost connections are retried for as long as they last, since the job does not depend on us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from launcher.aws.account import Account, AwsError
from launcher.console import Console, last_state, shown_path
from launcher.errors import RefusedError
from launcher.jobs.logs.job_logs import SETTLING_SECONDS, JobLogs, last_lines
from launcher.jobs.logs.loop_waits import LoopWaits, in_words
from launcher.jobs.logs.metrics import LiveTable, Metrics, plot
from launcher.jobs.logs.streams import Line, Selection, check_host, creation_of, hosts_of
from launcher.jobs.lookup import describe
from launcher.jobs.outcome import ENDED, Outcome, Statuses

_DESCRIBE_SECONDS = 5.0
_ROUND_SECONDS = 1.0
_THROTTLED_SECONDS = 60.0  # without an answer, before throttling is reported
_LONG_AGO_SECONDS = 180.0  # after its end, no more lines of a job appear
_COLOURS = ("cyan", "magenta", "green", "blue", "yellow")


class View(NamedTuple):
    """What is shown of a job while it is followed."""

    logs: bool = True  # if not, only its statuses
    selection: Selection = Selection()
    on_line: Callable[[Line], None] | None = None  # receives the lines instead of the console
    plot: Path | None = None  # where the metrics are drawn at the end
    settling: float = SETTLING_SECONDS  # seconds for which lines are held, since earlier ones may appear


def follow(account: Account, name: str, console: Console, view: View | None = None, *, is_new: bool = False) -> Outcome:
    """Show a job until it has ended. Ctrl-C leaves the job running and returns an outcome with `exit_code` 130.

    `is_new` states that the caller has just created the job. Without a `view`, everything is shown.

    Raises:
        RefusedError: The job does not exist, or AWS refuses further calls.
        AwsError: The job is new, and the caller may not describe it (`is_denied`).
    """
    view, following, interrupted = view or View(), None, False
    description: Mapping[str, Any] = {"TrainingJobName": name}
    try:
        description = _first_description(account, name, console)
        following = _Following(account, description, console, view)
        following.to_the_end()
    except KeyboardInterrupt:
        interrupted = following is None or following.description["TrainingJobStatus"] not in ENDED
    except AwsError as error:
        if is_new and following is None and error.is_denied:
            raise
        known = is_new or following is not None
        resume = f"resume with `launch logs {name}{account.options} --follow`"
        raise RefusedError(f"{error}; the job is not affected: {resume}" if known else str(error)) from None
    finally:
        if following is not None:
            following.table.close()
    outcome = following.outcome(interrupted=interrupted) if following else Outcome(description, interrupted=True)
    if interrupted:
        state = "continues" if is_new or following else "is not affected"
        named = f"{name}{account.options}"
        ways = f"`launch logs {named} --follow` resumes following it, `launch stop {named}` stops it"
        console.say(f"{name} {state}; {ways}", "yellow")
    else:
        outcome.show(console)
    if view.plot and following and plot(following.metrics.panels(), name, view.plot):
        console.say(f"  plot       {shown_path(view.plot)}")
    return outcome


def _first_description(account: Account, name: str, console: Console) -> Mapping[str, Any]:
    """Describe the job, retrying for as long as AWS has temporary errors."""
    troubled = False
    while True:
        try:
            description = describe(account, name)
        except AwsError as error:
            if not error.is_passing:
                raise
            if not troubled:
                console.say(_waiting(error, f"{name}{account.options}"), "yellow")
            troubled = True
            time.sleep(_ROUND_SECONDS)
        else:
            if troubled:
                console.say("AWS responds again", "yellow")
            return description


def _waiting(error: AwsError, job: str) -> str:
    resume = f"`launch logs {job} --follow` resumes"
    return f"{error}; trying again until it works. The job is not affected; after Ctrl-C, {resume}"


def line_printer(console: Console) -> Callable[[Line], None]:
    """Return a function that prints lines as `algo-1 | ...`, with a colour for each host, and records of waits as sentences."""
    colours: dict[str, str] = {}
    reported: set[str] = set()

    def show(line: Line) -> None:
        colour = colours.setdefault(line.host, _COLOURS[len(colours) % len(_COLOURS)])
        message = last_state(line.message.encode("utf-8", "replace")).decode().rstrip("\n")
        console.log(f"{line.host} |", in_words([message], reported), colour)

    return show


class _Following:
    def __init__(self, account: Account, description: Mapping[str, Any], console: Console, view: View) -> None:
        self.view = view
        self.description = description
        definitions = self.description.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
        self.metrics = Metrics(definitions, console.warn)
        self.table = LiveTable(self.metrics)
        self.waits = LoopWaits()
        self._account, self._name, self._console = account, description["TrainingJobName"], console
        check_host(view.selection.host, description)
        hosts = len(hosts_of(description))
        self._created = creation_of(description)
        selection = view.selection._replace(created=self._created)
        self._logs = JobLogs(account, self._name, selection, hosts, view.settling) if view.logs else None
        now = datetime.now(timezone.utc)
        ended = description.get("TrainingEndTime") if description["TrainingJobStatus"] in ENDED else now
        self._late = (now - (ended or now)).total_seconds() < _LONG_AGO_SECONDS
        self._on_line = view.on_line or line_printer(console)
        self._statuses = Statuses(self._say)
        self._next_describe = time.monotonic() + _DESCRIBE_SECONDS
        self._troubled: set[str] = set()  # questions without an answer: `status`, `lines`
        self._last_good: dict[str, float] = {}  # when each question was last answered

    def to_the_end(self) -> None:
        """Work in rounds until the job has ended and its last line has been shown."""
        while True:
            if self._statuses.show(self.description) and self._logs is not None:
                self._logs.expect_streams()
            if self.description["TrainingJobStatus"] in ENDED:
                break
            self._round()
            if self._logs is None or not self._logs.behind:
                time.sleep(_ROUND_SECONDS)
            self._describe_when_due()
        self._drain()

    def outcome(self, *, interrupted: bool) -> Outcome:
        """Return the job's state, with the lines that explain a failure: those that `launch status` reads, not those shown."""
        lines: tuple[Line, ...] = ()
        if self.description["TrainingJobStatus"] == "Failed":
            if self._logs is None and self._late:
                time.sleep(self.view.settling)  # until the last lines can be read
            lines = last_lines(self._account, self._name, self._created)
        return Outcome(self.description, self.metrics.last, lines, interrupted, self.waits.worst())

    def _describe_when_due(self) -> None:
        if time.monotonic() < self._next_describe:
            return
        self._next_describe = time.monotonic() + _DESCRIBE_SECONDS
        trouble = None
        try:
            self.description = describe(self._account, self._name)
        except AwsError as error:
            if not error.is_passing:
                raise
            trouble = error
        self._report_trouble("status", trouble)

    def _round(self) -> None:
        """Read and show new lines; stop reading them if AWS denies it."""
        if self._logs is None:
            return
        try:
            self._logs.read()
        except AwsError as error:
            if not error.is_denied:
                raise
            self._logs = None
            self._say(f"warning: {error}; only the job's statuses are shown", "yellow")
            return
        self._report_trouble("lines", self._logs.trouble)
        self._show(self._logs.ordered())

    def _drain(self) -> None:
        """Show the remaining lines, until no new one has appeared for a while, not even a late one."""
        try:
            self._read_rest()
        except AwsError as error:  # the job's result is known, and matters more
            self._say(f"warning: {error}; the job's last lines may be missing", "yellow")
        if self._logs is not None:
            self._show(self._logs.remaining())

    def _read_rest(self) -> None:
        begun = time.monotonic()
        while self._logs is not None:
            self._round()
            if self._logs is None or (self._logs.trouble is None and self._logs.behind):
                continue
            quiet = time.monotonic() - max(begun, self._logs.last_new)
            if self._logs.at_end and not self._late:
                break
            if self._logs.at_end and quiet >= 1.5 * self.view.settling and not self._look_back(self._logs):
                break
            time.sleep(min(_ROUND_SECONDS, self.view.settling / 2))

    def _look_back(self, logs: JobLogs) -> bool:
        """Read the end of each stream again, and return whether it has a line that was not there before."""
        before = logs.last_new
        logs.rewind()
        while True:
            logs.read()
            if logs.at_end:
                return logs.last_new != before
            self._report_trouble("lines", logs.trouble)

    def _show(self, lines: Iterable[Line]) -> None:
        if shown := list(lines):
            with self.table.aside():
                for line in shown:
                    self._on_line(line)
                    self.metrics.note(line.timestamp, line.host, line.message)
                    self.waits.note(line.message)

    def _report_trouble(self, what: str, error: AwsError | None) -> None:
        """Report once that a question has no answer, and once that it has one again; short throttling is normal."""
        now = time.monotonic()
        if error is None:
            if what in self._troubled:
                self._troubled.remove(what)
                self._say("AWS responds again", "yellow")
            self._last_good[what] = now
        elif what not in self._troubled:
            silent = now - self._last_good.setdefault(what, now)
            if not error.is_throttled or silent > _THROTTLED_SECONDS:
                self._troubled.add(what)
                self._say(_waiting(error, f"{self._name}{self._account.options}"), "yellow")

    def _say(self, text: str, colour: str) -> None:
        with self.table.aside():
            self._console.say(text, colour)
