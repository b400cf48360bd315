"""Runs one program as the first process of a container must: signals go on to it, orphans are reaped, nothing stays behind.

SageMaker stops a job by SIGTERM to PID 1 and kills everything after 120 s. PID 1 gets no default handling of signals
and inherits every orphan, so it has to do both jobs itself. One loop around select() does them without threads: signals
arrive as bytes of a pipe (signal.set_wakeup_fd), and so no signal can fall between two calls.

Who gets a signal: the program alone, once, which lives in a session of its own. torchrun passes it on to its workers,
and a training script's DataLoader workers are not shot from under it while it writes its checkpoint. A shell that dies
of SIGTERM leaves its command to us as an orphan: orphans that come to us while we stop get the signal once, too. What
is left when the program has ended is killed, as the kernel does when PID 1 ends; locally, where we are not PID 1, Linux
makes us the reaper of orphans on demand (PR_SET_CHILD_SUBREAPER). Without /proc (macOS) only the program's process
group can be found.

The program's stderr passes through us, unbuffered, because its end says why a training failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from entrypoints.start.failure import shell_code

TAIL_BYTES = 64 * 1024  # of stderr that are kept: several tracebacks, whatever torchrun adds after them
PR_SET_CHILD_SUBREAPER = 36
STOPPING = (signal.SIGTERM, signal.SIGINT)  # passed on; then there is time to write a checkpoint
AT_ONCE = signal.SIGQUIT  # kills everything: for a launcher whose user presses Ctrl-C twice
ORPHAN_SECONDS = 1.0  # what outlives the program has this long to clean up: multiprocessing's trackers do
POLL_SECONDS = 0.1  # how often orphans are looked for: the end of their parents is not told to us


@dataclass(frozen=True)
class ProgramResult:
    """How a program ended."""

    exit_code: int  # 128 + n where signal n ended it
    stderr: str  # its end
    stopped_by: signal.Signals | None  # the signal that we passed on, if any


@dataclass
class _Run:
    """The state of the loop."""

    pid: int
    grace_seconds: float
    exit_code: int | None = None
    stopped_by: signal.Signals | None = None
    deadline: float | None = None
    signalled: set[int] = field(default_factory=set)
    tail: bytearray = field(default_factory=bytearray)


def run_program(
    command: Sequence[str | bytes],
    environ: Mapping[str, str] | Mapping[bytes, bytes],
    directory: Path,
    grace_seconds: float,
) -> ProgramResult:
    """Runs a program to its end, in `directory`, with exactly the variables of `environ`.

    After a signal it has `grace_seconds` until it and all that it started are killed. Must run in the main thread of a
    process without other children: it reaps every child there is. Raises OSError where the program cannot be started.
    """
    _become_reaper()
    with _signals_as_bytes() as wakeup:
        # Its own session: a signal to our process group, as a terminal sends it, reaches the program once, through us.
        child = subprocess.Popen(
            command,
            env=environ,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert child.stderr is not None
        run = _Run(child.pid, grace_seconds)
        with child.stderr:
            _loop(run, wakeup, child.stderr.fileno())
            _kill_the_rest(run)
            os.set_blocking(child.stderr.fileno(), False)
            while _pass_on(run, child.stderr.fileno()):
                pass
        assert run.exit_code is not None
        child.returncode = run.exit_code  # reaped by us: Popen must not wait for it
    return ProgramResult(run.exit_code, run.tail.decode("utf-8", "replace"), run.stopped_by)


def _loop(run: _Run, wakeup: int, stderr: int) -> None:
    """Until the program and all that it started have ended, or until their time is over."""
    waiting_for = [wakeup, stderr]
    while True:
        if run.exit_code is not None:
            if not _orphans(run):
                return
            run.deadline = run.deadline or time.monotonic() + ORPHAN_SECONDS
        timeout = None
        if run.deadline is not None:
            timeout = min(POLL_SECONDS, run.deadline - time.monotonic())
            if timeout <= 0:
                return
        ready, _, _ = select.select(waiting_for, [], [], timeout)
        if stderr in ready and not _pass_on(run, stderr):
            waiting_for = [wakeup]
        if wakeup in ready:
            for number in os.read(wakeup, 4096):
                _on_signal(run, signal.Signals(number))


def _on_signal(run: _Run, number: signal.Signals) -> None:
    if number == signal.SIGCHLD:
        _reap(run)
    elif number == AT_ONCE:
        run.stopped_by, run.deadline = run.stopped_by or number, time.monotonic()
    elif run.exit_code is None and run.stopped_by is None:
        run.stopped_by, run.deadline = number, time.monotonic() + run.grace_seconds
        run.signalled.add(run.pid)
        _send(run.pid, number)


def _orphans(run: _Run) -> bool:
    """Whether processes are left; while stopping, those that have become our children are told so, once."""
    parents = _parents()
    if run.stopped_by is not None:
        for pid in {pid for pid, parent in parents.items() if parent == os.getpid()} - run.signalled:
            run.signalled.add(pid)
            _send(pid, run.stopped_by)
    return bool(_descendants(parents))


def _kill_the_rest(run: _Run) -> None:
    """Kills all that is left, and reaps it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(run.pid, signal.SIGKILL)  # all that macOS lets us find
    until = time.monotonic() + 10  # a process can hang in the kernel, on a dead mount for one
    while run.exit_code is None or _descendants(_parents()):
        for pid in _descendants(_parents()):
            _send(pid, signal.SIGKILL)
        _reap(run)
        if time.monotonic() > until:
            run.exit_code = 128 + signal.SIGKILL if run.exit_code is None else run.exit_code
            print("boot: a process of the training cannot be killed; it is left behind", file=sys.stderr)
            return
        time.sleep(0.01)


def _reap(run: _Run) -> None:
    """Takes the exit status of every child that has ended, ours by birth or adopted."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == run.pid:
            run.exit_code = shell_code(os.waitstatus_to_exitcode(status))


def _pass_on(run: _Run, stderr: int) -> bool:
    """Hands on what the program has written to stderr and keeps its end; False when there is no more."""
    try:
        data = os.read(stderr, 65536)
    except BlockingIOError:
        return False
    run.tail += data
    del run.tail[:-TAIL_BYTES]
    left = data
    with contextlib.suppress(OSError):  # nobody listens to us any more: no reason to stop the training
        while left:
            left = left[os.write(sys.stderr.fileno(), left) :]
    return bool(data)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


def _parents() -> dict[int, int]:
    """Every process, those that wait to be reaped too, with its parent; empty without /proc."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_bytes()
        except OSError:
            continue  # it has just ended
        parents[int(folder.name)] = int(stat.rpartition(b")")[2].split()[1])  # after the name, which can hold anything
    return parents


def _descendants(parents: Mapping[int, int]) -> list[int]:
    """The processes below this one."""
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _become_reaper() -> None:
    """Makes orphans ours even where we are not PID 1. Linux only; elsewhere they go to the system's PID 1."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def _signals_as_bytes() -> Iterator[int]:
    """A descriptor from which each signal that we care about can be read as one byte."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    previous_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    numbers = (*STOPPING, AT_ONCE, signal.SIGCHLD)
    previous = {number: signal.signal(number, lambda number, frame: None) for number in numbers}
    try:
        yield reading
    finally:
        for number, former in previous.items():
            signal.signal(number, former)
        signal.set_wakeup_fd(previous_fd)
        os.close(reading)
        os.close(writing)
