"""Run a program as PID 1 of a container: pass on signals, reap orphans, leave no process behind.

SageMaker stops a job by SIGTERM to PID 1, which has no default signal handlers, and kills everything after 120 s. One select() loop
does all without threads: signals are bytes in a pipe (signal.set_wakeup_fd), so none falls between two calls.

A signal goes once, to the program alone, in a session of its own: torchrun passes it on, and a script keeps its DataLoader workers
while it writes its checkpoint. A shell that dies of SIGTERM orphans its command: orphans get the signal once, too. Processes that
are left are killed, as by the kernel when PID 1 ends. Locally, Linux makes this process the reaper of orphans
(_PR_SET_CHILD_SUBREAPER); without /proc (macOS) only the program's process group can be found. stderr is copied, since its end has
the reason of a failure.
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

from sagemaker_channels.job.process_identity import processes, stat
from sagemaker_channels.start.failure import shell_code

TAIL_BYTES = 64 * 1024  # of stderr that are kept: several tracebacks and torchrun's report
_PR_SET_CHILD_SUBREAPER = 36
_STOPPING = (signal.SIGTERM, signal.SIGINT)  # passed on; then there is time to write a checkpoint
_AT_ONCE = signal.SIGQUIT  # kills everything: for a launcher whose user presses Ctrl-C twice
_ORPHAN_SECONDS = 1.0  # for processes that outlive the program to clean up, such as multiprocessing's trackers
_POLL_SECONDS = 0.1  # between two searches for orphans, which no signal announces


@dataclass(frozen=True)
class ProgramResult:
    exit_code: int  # 128 + n if signal n ended it
    stderr: str  # the end of its stderr
    stopped_by: signal.Signals | None  # the signal that was passed on, if any


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
    command: Sequence[str], environ: Mapping[str, str], directory: Path, grace_seconds: float
) -> ProgramResult:
    """Run a program to its end, with exactly these variables. Raises OSError if it cannot be started.

    Call it in the main thread of a process without other children: it reaps all children. After a signal, the program may run for
    `grace_seconds`; then it and all its children are killed.
    """
    if sys.platform == "linux":  # Adopt orphans even if this is not PID 1; elsewhere the system's PID 1 adopts them.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with _signals_as_bytes() as wakeup:
        # In its own session, so that a terminal's signal to our process group reaches the program once, through us.
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
        child.returncode = run.exit_code  # It is reaped already: Popen must not wait for it.
    return ProgramResult(run.exit_code, run.tail.decode("utf-8", "replace"), run.stopped_by)


def _loop(run: _Run, wakeup: int, stderr: int) -> None:
    """Run until the program and all its children have ended, or until their time is over."""
    waiting_for = [wakeup, stderr]
    while True:
        if run.exit_code is not None:
            if not _orphans(run):
                return
            run.deadline = run.deadline or time.monotonic() + _ORPHAN_SECONDS
        timeout = None
        if run.deadline is not None:
            timeout = min(_POLL_SECONDS, run.deadline - time.monotonic())
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
    elif number == _AT_ONCE:
        run.stopped_by, run.deadline = run.stopped_by or number, time.monotonic()
    elif run.exit_code is None and run.stopped_by is None:
        run.stopped_by, run.deadline = number, time.monotonic() + run.grace_seconds
        run.signalled.add(run.pid)
        _send(run.pid, number)


def _orphans(run: _Run) -> bool:
    """Return whether processes are left; while stopping, orphans that have become our children get the signal once."""
    parents = _parents()
    if run.stopped_by is not None:
        for pid in {pid for pid, parent in parents.items() if parent == os.getpid()} - run.signalled:
            run.signalled.add(pid)
            _send(pid, run.stopped_by)
    return bool(_descendants(parents))


def _kill_the_rest(run: _Run) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(run.pid, signal.SIGKILL)  # all that can be found on macOS
    until = time.monotonic() + 10  # A process can hang in the kernel, for example on a dead mount.
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
    """Reap every child that has ended, including adopted orphans."""
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
    """Copy the program's output on stderr and keep its end; False at its end."""
    try:
        data = os.read(stderr, 65536)
    except BlockingIOError:
        return False
    run.tail += data
    del run.tail[:-TAIL_BYTES]
    left = data
    with contextlib.suppress(OSError):  # The reader of our stderr has gone, which is no reason to stop the training.
        while left:
            left = left[os.write(sys.stderr.fileno(), left) :]
    return bool(data)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # It has just ended.
        os.kill(pid, number)


def _parents() -> dict[int, int]:
    """Return every process, including zombies, with its parent; empty without /proc."""
    known = {pid: stat(pid) for pid in processes()}
    return {pid: int(fields[1]) for pid, fields in known.items() if fields is not None}


def _descendants(parents: Mapping[int, int]) -> list[int]:
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


@contextlib.contextmanager
def _signals_as_bytes() -> Iterator[int]:
    """Return a descriptor from which each handled signal can be read as one byte."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    previous_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    numbers = (*_STOPPING, _AT_ONCE, signal.SIGCHLD)
    previous = {number: signal.signal(number, lambda number, frame: None) for number in numbers}
    try:
        yield reading
    finally:
        for number, former in previous.items():
            signal.signal(number, former)
        signal.set_wakeup_fd(previous_fd)
        os.close(reading)
        os.close(writing)
