"""Following the hosts of an attempt to its end: output, exit codes, planned end, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import IO

from launcher.console import last_state, shown_path
from launcher.errors import RefusedError, StoppedError, TrainingFailedError
from launcher.jobs.metrics import Metrics
from launcher.jobs.waits import ChannelWaits, LoopWaits, in_words
from launcher.local.runners import HostProcess, Kept
from launcher.local.workspace import LocalRun
from sagemaker_channels import contract

INTERRUPTED = "Interrupted"
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_COLOURS = ("cyan", "magenta", "green", "blue", "yellow")
_ABANDONED_SECONDS = 10  # for other hosts after one has failed: they may wait in a barrier that no process will join
_CHUNK = 1 << 20  # bytes per read: lines are printed in batches if the job is faster than the terminal
_LONGEST_LINE = 1 << 20  # bytes; a job that prints no line breaks must not fill the memory


@dataclass(frozen=True)
class PlannedEnd:
    """What ends an attempt if the job does not."""

    seconds: float = float("inf")  # after its start
    secondary: str = "Stopped"  # the secondary status, in SageMaker's words
    reason: str = ""
    interrupt_at: str | None = None  # a text in a line of the log that interrupts the attempt before


@dataclass(frozen=True)
class RunResult:
    """The result of an attempt, or of all attempts of a run."""

    secondary: str  # the secondary status, in SageMaker's words
    exit_codes: tuple[int, ...] = ()  # of the hosts, negative for signals
    exit_code: int = 0  # of the command
    reason: str = ""
    killed: bool = False  # whether a host did not end by itself
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waits: tuple[ChannelWaits, ...] = ()
    kept: Kept | None = None

    @property
    def status(self) -> str:
        """The status, in SageMaker's words."""
        return self.secondary if self.secondary in ("Completed", "Failed") else "Stopped"


@dataclass
class Stops:
    """The signals that end a run as Ctrl-C does."""

    received: list[int] = field(default_factory=list)
    held: bool = False  # whether they are only noted, since what runs is short and must not be interrupted
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


@dataclass
class _Watch:
    run: LocalRun
    failures: list[Exception]
    metrics: Metrics
    stops: Stops
    interrupt_at: str | None = None
    seen: threading.Event = field(default_factory=threading.Event)  # whether a line had that text
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    waits: LoopWaits = field(default_factory=LoopWaits)
    asked: set[int] = field(default_factory=set)  # processes that have been sent SIGTERM
    reported: set[str] = field(default_factory=set)  # channels whose workers a line has reported
    unlogged: set[str] = field(default_factory=set)  # hosts whose lines can no longer be logged

    def follow(self, host: str, stream: IO[bytes], colour: str) -> None:
        """Print and log one stream of a host to its end: a job blocks if its pipe is not read.

        As in a container's log, lines of stdout and stderr stay whole: a printed line never continues a progress bar on stderr.
        """
        rest = b""
        with (self.run.folder / f"{host}.log").open("ab", buffering=0) as log:
            while chunk := os.read(stream.fileno(), _CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _LONGEST_LINE:
                    rest = last_state(rest)
                    lines, rest = ([*lines, rest], b"") if len(rest) > _LONGEST_LINE else (lines, rest)
                self._show(host, lines, colour, log, last_state(rest) if b"\r" in rest else b"")
            self._show(host, [rest] if rest else [], colour, log)

    def _show(self, host: str, lines: list[bytes], colour: str, log: IO[bytes], state: bytes = b"") -> None:
        """Write whole lines to the terminal and the log; a progress bar's `state` to the terminal only."""
        shown = [last_state(line) if b"\r" in line else line for line in lines]
        texts = [line.decode("utf-8", "replace") for line in shown]
        for text in texts:
            self.metrics.note(int(time.time() * 1000), host, text)
            self.waits.note(text)
            if self.interrupt_at is not None and self.interrupt_at in text:
                self.seen.set()
        try:
            if host not in self.unlogged:
                log.write(b"".join(line + b"\n" for line in shown))
        except OSError as error:
            self.unlogged.add(host)
            self.run.console.warn(f"{shown_path(log.name)}: cannot be written: {error.strerror}; free space there")
        with suppress(OSError):  # the terminal is closed
            self.run.console.log(f"{host} |", self._for_people(texts), colour, state.decode("utf-8", "replace"))

    def _for_people(self, texts: list[str]) -> list[str]:
        return texts if self.run.options.verbose else in_words(texts, self.reported)

    def running(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self.processes if process.returncode is None]

    def wait(self, deadline: float) -> None:
        """Wait until every host has ended, one or a channel has failed, the log has the text, or the deadline has passed."""
        while self.running() and not self.failures and not self.seen.is_set() and time.monotonic() < deadline:
            if any(process.returncode for process in self.processes):
                return
            time.sleep(0.05)

    def stop(self, seconds: float = contract.STOP_SECONDS, *, say: str = "") -> bool:
        """Send SIGTERM, and SIGKILL after `seconds` (by default SageMaker's 120); a Ctrl-C meanwhile kills immediately.

        Args:
            seconds: The patience.
            say: What kills immediately, for the line that announces the stop; none if it is empty.

        Returns:
            Whether a host was killed.
        """
        for process in self.processes:
            _reap(process)  # again, for one that a Ctrl-C left without
        try:
            if say:  # printed inside the `try`, since it invites that
                self.run.console.say(f"stopping (up to {seconds} s; {say} kills)", "yellow")
            end = time.monotonic() + seconds
            while self.running() and time.monotonic() < end:
                # A process that has just started handles no signal yet, so it is sent again.
                pending = [process for process in self.running() if process.pid not in self.asked]
                self.asked |= {each.pid for each in pending if self.run.runner.terminate(each)}
                time.sleep(0.05)
        except KeyboardInterrupt:
            self.run.console.say("killing")
        self.stops.held = True
        killed = self.running()
        for process in killed:
            self.run.runner.kill(process)
        for process in self.processes:
            process.wait()
        return bool(killed)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process in a thread: a Ctrl-C reaches the main thread only, and inside poll() leaves its lock locked for ever."""
    threading.Thread(target=process.wait, daemon=True).start()


def watch(
    hosts: Sequence[HostProcess], run: LocalRun, failures: list[Exception], end: PlannedEnd, stops: Stops
) -> RunResult:
    """Start the hosts and follow them; return when the last of their processes has ended, and hold Ctrl-C from then on."""
    definitions = run.plan.request.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
    state = _Watch(run, failures, Metrics(definitions, run.console.warn), stops, end.interrupt_at)
    begun = time.monotonic()
    interrupted = False
    threads = []
    with ExitStack() as stack:
        stack.callback(state.stop)
        try:
            for index, host in enumerate(hosts):
                process = run.runner.start(host)
                state.processes.append(process)
                _reap(process)
                for stream in (process.stdout, process.stderr):
                    arguments = (host.name, stream, _COLOURS[index % len(_COLOURS)])
                    threads.append(threading.Thread(target=state.follow, args=arguments, daemon=True))
                    threads[-1].start()
            state.wait(begun + end.seconds)
        except KeyboardInterrupt:
            interrupted = True
        ended = [process.returncode for process in state.processes]
        failed = any(ended) or bool(failures)
        patience = _ABANDONED_SECONDS if failed and not interrupted else contract.STOP_SECONDS
        is_planned = state.running() and not failed
        hint = "Ctrl-C again" if signal.SIGINT in stops.received else "Ctrl-C"
        killed = state.stop(patience, say=hint if interrupted or is_planned else "")
        if not state.asked and not killed:  # they ended before it could stop them
            ended = [process.returncode for process in state.processes]
            failed = any(ended)
    for thread in threads:
        thread.join(timeout=10)
    try:
        run.finish()
    except RefusedError as error:
        failures.append(error)
    codes = tuple(process.returncode for process in state.processes)
    if interrupted:
        result = RunResult("Stopped", codes, 130)
    elif failures:
        result = RunResult("Failed", codes, TrainingFailedError.exit_code, str(failures[0]))
    elif failed:
        # A host that was stopped because another failed has not failed itself.
        result = RunResult("Failed", tuple(code or 0 for code in ended), TrainingFailedError.exit_code)
    elif state.asked or killed:
        planned = PlannedEnd(secondary=INTERRUPTED) if state.seen.is_set() else end
        result = RunResult(planned.secondary, codes, StoppedError.exit_code, planned.reason, killed)
    else:
        result = RunResult("Completed", codes)
    return replace(result, seconds=time.monotonic() - begun, metrics=state.metrics.last, waits=state.waits.worst())
