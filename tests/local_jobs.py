"""A job in a folder of its own, its local run by the `launch` command, and what must not remain after it.

`command` is for a process of its own, on a terminal or with other streams; `begun` and `launch` fork one that has the launcher.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

import pytest

from forked import LAUNCHER, Forked, run
from launcher.local.processes import why_no_namespaces
from launcher.rules.examples import laid_over_base
from patience import PATIENCE, wait_for

EFS, FSX = "fs-0123456789abcdef0", "fs-0123456789abcdef1"


def write_job(
    here: Path, script: str, overlay: str = "", name: str = "train.py", code: str = "", command: str | None = None
) -> None:
    (here / "src" / name).write_text(script)
    run = f"entry_point: {name}" if command is None else f"command: {json.dumps(command)}"
    (here / "job.yaml").write_text(laid_over_base(f"code: {{directory: src, {run}{code}}}\n{overlay}"))


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "launcher", "job.yaml", "--local", "--data", "data", "--name", "job", *options]


def begun(here: Path, *options: str) -> Forked:
    """Begin a run in a forked process; its stdout has what it writes to stderr, too."""
    return Forked(LAUNCHER, command(*options)[1:], cwd=here, streams=(DEVNULL, PIPE, STDOUT))


def signalled(here: Path, *options: str, at: str = "ready", number: int = signal.SIGINT) -> tuple[int, str]:
    """Send a run a signal at each line in which the pattern is found; return its exit code and its lines."""
    output = ""
    with begun(here, *options) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if re.search(at, line):
                process.send_signal(number)
        return process.wait(PATIENCE), output


def launch(here: Path, *options: str, code: int = 0) -> str:
    done = run(LAUNCHER, command(*options)[1:], cwd=here)
    assert done.returncode == code, done.stdout + done.stderr
    assert_nothing_is_left(here)
    return done.stdout + done.stderr


def result(here: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((here / ".launch/job/result.json").read_text())
    return loaded


def assert_nothing_is_left(here: Path) -> None:
    """Assert that no mount, FIFO or process of this run exists."""
    wait_for(
        lambda: not processes_of(here)
    )  # What cleans up may outlive a launcher that was interrupted as it started it.
    assert str(here) not in Path("/proc/self/mounts").read_text()
    assert [path for path in (here / ".launch").rglob("*") if path.is_fifo()] == []


def processes_of(here: Path) -> list[bytes]:
    """Return the command lines of processes whose arguments or environment name this run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            words, environ = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            if f"{here}/.launch".encode() in words + environ:
                found.append(words)
    return found


def namespaces() -> None:
    if reason := why_no_namespaces():
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
