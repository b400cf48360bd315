"""Following the hosts of a run to their end: output, exit codes, time limit, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import IO, Literal

from entrypoints import contract
from launcher.console import last_state
from launcher.errors import RefusedError, StoppedError, TrainingFailedError
from launcher.jobs.logs.loop_waits import ChannelWaits, LoopWaits
from launcher.jobs.logs.metrics import Metrics
from launcher.local.runners import HostProcess
from launcher.local.workspace import LocalRun

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_COLOURS = ("cyan", "magenta", "green", "blue", "yellow")
_ABANDONED_SECONDS = 10  # for other hosts after one has failed: they may wait in a barrier that no process will join
_CHUNK = 1 << 20  # bytes per read: lines are printed in batches if the job is faster than the terminal
_LONGEST_LINE = 1 << 20  # bytes; a job that prints no line breaks must not fill the memory


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    status: Literal["Completed", "Failed", "Stopped"]
    exit_codes: tuple[int, ...]  # of the hosts, negative for signals
    exit_code: int  # of the command
    reason: str = ""
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waits: tuple[ChannelWaits, ...] = ()


@dataclass
class _Watch:
    run: LocalRun
    failures: list[Exception]
    metrics: Metrics
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    waits: LoopWaits = field(default_factory=LoopWaits)
    silent: set[str] = field(default_factory=set)  # hosts whose lines can no longer be printed or logged

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
        if host in self.silent:
            return
        try:
            log.write(b"".join(line + b"\n" for line in shown))
            self.run.console.log(f"{host} |", texts, colour, state.decode("utf-8", "replace"))
        except OSError:  # the disk is full, or the terminal is closed
            self.silent.add(host)

    def running(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self.processes if process.returncode is None]

    def wait(self, deadline: float) -> None:
        """Wait until every host has ended, one has failed, a channel has failed, or the deadline has passed."""
        while self.running() and not self.failures and time.monotonic() < deadline:
            if any(process.returncode for process in self.processes):
                return
            time.sleep(0.05)

    def stop(self, seconds: float = contract.STOP_SECONDS, *, interrupted: bool = False) -> None:
        """Send SIGTERM, and SIGKILL after `seconds` (by default SageMaker's 120); a second Ctrl-C kills immediately."""
        for process in self.processes:
            _reap(process)  # again, for one that a Ctrl-C left without
        try:
            if interrupted:  # printed inside the `try`, since it invites the second Ctrl-C
                self.run.console.say(f"stopping (up to {seconds} s; Ctrl-C again kills)", "yellow")
            end = time.monotonic() + seconds
            asked: set[int] = set()
            while self.running() and time.monotonic() < end:
                # A process that has just started handles no signal yet, so it is sent again.
                pending = [process for process in self.running() if process.pid not in asked]
                asked |= {each.pid for each in pending if self.run.runner.terminate(each)}
                time.sleep(0.05)
        except KeyboardInterrupt:
            self.run.console.say("killing")
        for number in STOPPING:  # the rest is short and must not be interrupted
            signal.signal(number, signal.SIG_IGN)
        for process in self.running():
            self.run.runner.kill(process)
        for process in self.processes:
            process.wait()


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process in a thread: a Ctrl-C reaches the main thread only, and inside poll() leaves its lock locked for ever."""
    threading.Thread(target=process.wait, daemon=True).start()


def watch(hosts: Sequence[HostProcess], run: LocalRun, failures: list[Exception]) -> RunResult:
    """Start the hosts and follow them; return when the last of their processes has ended, and ignore Ctrl-C from then on."""
    definitions = run.plan.request.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
    state = _Watch(run, failures, Metrics(definitions, run.console.warn))
    begun = time.monotonic()
    limit = run.plan.request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", float("inf"))
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
            state.wait(begun + limit)
        except KeyboardInterrupt:
            interrupted = True
        timed_out = time.monotonic() >= begun + limit and bool(state.running())
        ended = [process.returncode for process in state.processes]
        failed = any(ended) or bool(failures)
        patience = _ABANDONED_SECONDS if failed and not interrupted else contract.STOP_SECONDS
        state.stop(patience, interrupted=interrupted)
    for thread in threads:
        thread.join(timeout=10)
    try:
        run.runner.finish(run.folder)
    except RefusedError as error:
        failures.append(error)
    codes = tuple(process.returncode for process in state.processes)
    if interrupted:
        result = RunResult("Stopped", codes, 130)
    elif timed_out:
        result = RunResult("Stopped", codes, StoppedError.exit_code, f"MaxRuntimeInSeconds ({limit}) is over")
    elif failures:
        result = RunResult("Failed", codes, TrainingFailedError.exit_code, str(failures[0]))
    elif failed:
        # A host that was stopped because another failed has not failed itself.
        result = RunResult("Failed", tuple(code or 0 for code in ended), TrainingFailedError.exit_code)
    else:
        result = RunResult("Completed", codes, 0)
    return replace(result, seconds=time.monotonic() - begun, metrics=state.metrics.last, waits=state.waits.worst())
