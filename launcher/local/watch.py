"""Following the hosts of an attempt to its end: output, exit codes, planned end, and Ctrl-C.

This loop is no second `jobs.follow`, which only looks at a job in AWS: it asks for lines, which are late and out of order, and
Ctrl-C ends the asking. Here the run itself depends on the loop: a job blocks if its pipes are not read, and is stopped by its
limits, a failed host and Ctrl-C. Both show lines by `ReadLines`, and report by `Outcome`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import IO

from launcher.console import last_state, shown_path
from launcher.errors import StoppedError, TrainingFailedError
from launcher.jobs.follow import ReadLines
from launcher.jobs.lines import Line
from launcher.jobs.waits import ChannelWaits
from launcher.local.state import LocalRun
from launcher.local.workspace import HostProcess
from sagemaker_channels import contract

INTERRUPTED = "Interrupted"
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ABANDONED_SECONDS = 10  # for other hosts after one has failed: they may wait in a barrier that no process will join
_LOOK_SECONDS = 0.05  # between two looks at the hosts
_CHUNK = 1 << 20  # bytes per read: lines are printed in batches if the job is faster than the terminal
_LONGEST_LINE = 1 << 20  # bytes; a job that prints no line breaks must not fill the memory


@dataclass(frozen=True)
class PlannedEnd:
    """What ends an attempt if the job does not."""

    seconds: float = float("inf")  # after its start
    secondary: str = "Stopped"  # the secondary status, in SageMaker's words
    reason: str = ""
    interrupt_at: str | None = None  # a text that interrupts it before, once a line of a log contains it


@dataclass(frozen=True)
class RunResult:
    """The result of an attempt, or of all attempts of a run."""

    secondary: str  # the secondary status, in SageMaker's words
    exit_codes: tuple[int, ...] = ()  # of the hosts, negative for signals
    exit_code: int = 0  # of the command
    reason: str = ""
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waits: tuple[ChannelWaits, ...] = ()

    @property
    def status(self) -> str:
        return self.secondary if self.secondary in ("Completed", "Failed") else "Stopped"


@dataclass
class Stops:
    """The signals that end a run as Ctrl-C does."""

    received: list[int] = field(default_factory=list)
    # Whether they are only noted, since the code that runs looks at them, or must not be interrupted.
    held: bool = False
    terminals: Sequence[int] = field(default_factory=lambda: [number for number in (1, 2) if os.isatty(number)])

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        for closed in [each for each in self.terminals if not os.isatty(each)]:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - what follows must not fail for want of a terminal
                os.dup2(nowhere.fileno(), closed)
        if not self.held:
            raise KeyboardInterrupt

    def release(self) -> None:
        """Let the signals interrupt again. Raises KeyboardInterrupt if there was one meanwhile."""
        self.held = False
        if self.received:
            raise KeyboardInterrupt


@contextmanager
def stop_signals() -> Iterator[Stops]:
    """Let SIGTERM and a closed terminal end the run as Ctrl-C does, with its clean-up.

    A signal that was ignored before, such as SIGHUP under nohup, stays ignored.
    """
    stops = Stops()
    before = {number: signal.getsignal(number) for number in _STOPPING}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, stops.interrupt)
    try:
        yield stops
    finally:
        for number in heard:
            signal.signal(number, before[number])


class _Output:
    """The lines of all hosts: printed, logged, and searched for metrics and waits."""

    def __init__(self, run: LocalRun, text: str | None) -> None:
        self.read = ReadLines(run.plan.request, run.console)
        self._run, self._text, self.has_text = run, text, False
        self._unlogged: set[str] = set()  # hosts whose lines can no longer be logged

    def follow(self, host: str, stream: IO[bytes]) -> None:
        """Print and log one stream of a host to its end: a job blocks if its pipe is not read.

        As in a container's log, lines of stdout and stderr stay whole: a printed line never continues a progress bar on stderr.
        """
        rest = b""
        with stream, (self._run.folder / f"{host}.log").open("ab", buffering=0) as log:
            while chunk := os.read(stream.fileno(), _CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _LONGEST_LINE:
                    rest = last_state(rest)
                    lines, rest = ([*lines, rest], b"") if len(rest) > _LONGEST_LINE else (lines, rest)
                self._show(host, lines, log, last_state(rest) if b"\r" in rest else b"")
            self._show(host, [rest] if rest else [], log)

    def _show(self, host: str, lines: list[bytes], log: IO[bytes], state: bytes = b"") -> None:
        """Write whole lines to the terminal and the log; a progress bar's `state` to the terminal only."""
        shown = [last_state(line) if b"\r" in line else line for line in lines]
        texts = [line.decode("utf-8", "replace") for line in shown]
        for text in texts:
            self.read.note(Line(int(time.time() * 1000), host, text))
            if self._text is not None and self._text in text:
                self.has_text = True
        console = self._run.console
        try:
            if host not in self._unlogged:
                log.write(b"".join(line + b"\n" for line in shown))
        except OSError as error:
            self._unlogged.add(host)
            console.warn(f"{shown_path(log.name)}: cannot be written: {error.strerror}; free space there")
        with suppress(OSError):  # the terminal is closed
            self.read.print(host, texts, state.decode("utf-8", "replace"), verbose=self._run.options.verbose)


def watch(
    hosts: Sequence[HostProcess], run: LocalRun, failures: list[Exception], end: PlannedEnd, stops: Stops
) -> RunResult:
    """Start the hosts and follow them; return when the last of their processes has ended. Signals are only noted from now on."""
    stops.held = True
    output = _Output(run, end.interrupt_at)
    processes: list[subprocess.Popen[bytes]] = []
    threads: list[threading.Thread] = []
    begun = time.monotonic()
    try:
        for host in hosts:
            processes.append(run.runner.start(host))
            for stream in (processes[-1].stdout, processes[-1].stderr):
                threads.append(threading.Thread(target=output.follow, args=(host.name, stream), daemon=True))
                threads[-1].start()
        while _running(processes) and not (failures or stops.received or output.has_text):
            if time.monotonic() > begun + end.seconds or any(process.returncode for process in processes):
                break
            time.sleep(_LOOK_SECONDS)
    except BaseException:
        _stop(processes, run, stops, 0, len(stops.received))
        raise
    end = PlannedEnd(secondary=INTERRUPTED) if output.has_text else end
    ended, interrupted = [process.returncode for process in processes], len(stops.received)
    failed = any(ended) or bool(failures)
    patience = _ABANDONED_SECONDS if failed and not interrupted else contract.STOP_SECONDS
    if interrupted or (None in ended and not failed):
        hint = "Ctrl-C again" if signal.SIGINT in stops.received else "Ctrl-C"
        run.console.say(f"stopping (up to {patience} s; {hint} kills)", "yellow")
    asked, killed = _stop(processes, run, stops, patience, interrupted)
    codes = tuple(process.returncode for process in processes)
    if not asked and not killed:  # they ended before they could be stopped
        ended, failed = list(codes), any(codes) or bool(failures)
    for thread in threads:
        thread.join(timeout=10)
    run.finish()
    if interrupted:
        result = RunResult("Stopped", codes, 130)
    elif failures:
        result = RunResult("Failed", codes, TrainingFailedError.exit_code, str(failures[0]))
    elif failed:
        # A host that was stopped because another failed has not failed itself.
        result = RunResult("Failed", tuple(code or 0 for code in ended), TrainingFailedError.exit_code)
    elif asked or killed:
        result = RunResult(end.secondary, codes, StoppedError.exit_code, end.reason)
    else:
        result = RunResult("Completed", codes)
    return replace(
        result, seconds=time.monotonic() - begun, metrics=output.read.metrics.last, waits=output.read.waits.worst()
    )


def _running(processes: Sequence[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    return [process for process in processes if process.poll() is None]


def _stop(
    processes: Sequence[subprocess.Popen[bytes]], run: LocalRun, stops: Stops, seconds: float, before: int
) -> tuple[bool, bool]:
    """Send SIGTERM, and SIGKILL after `seconds`, or when there are more stops than before; return whether each was sent."""
    end, asked = time.monotonic() + seconds, set[int]()
    while (running := _running(processes)) and time.monotonic() < end and len(stops.received) == before:
        # A process that has just started handles no signal yet, so it is sent again.
        asked |= {each.pid for each in running if each.pid not in asked and run.runner.terminate(each)}
        time.sleep(_LOOK_SECONDS)
    if running and len(stops.received) > before:
        run.console.say("killing")
    for process in running:
        run.runner.kill(process)
    for process in processes:
        process.wait()
    return bool(asked), bool(running)
