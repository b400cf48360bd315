"""`launch exec NAME` for a local run: a program beside the job's, in its host, with its variables and working directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.errors import RefusedError
from launcher.jobs.lines import check_host
from launcher.jobs.remote import noting_ctrl_c
from launcher.local import beside
from launcher.local.engine import Engine
from launcher.local.workspace import BEST_SHELL
from sagemaker_channels.job.process_identity import processes
from sagemaker_channels.start.failure import shell_code


def execute(run: Mapping[str, Any], host: str, command: str, *, to_stderr: bool = False) -> int:
    """Run a shell command in a host of a described local run, or without one a shell on this terminal; return its exit code.

    Raises:
        RefusedError: The run has ended, or has no such host.
    """
    name, runner = run["TrainingJobName"], run["Runner"]
    if run["TrainingJobStatus"] != "InProgress":
        remedy = "`launch exec job.yaml`, with its spec, makes a host like its hosts"
        raise RefusedError(f"{name} is {run['TrainingJobStatus']}; only a running job can be entered. {remedy}")
    check_host(host, run)
    if runner == "process":
        mark = f"{Path(run['Folder']).absolute()}/{host}/"
        words = [*_into_namespaces(mark.encode()), sys.executable, "-I"]
    else:
        mark, terminal = f"TRAINING_JOB_NAME={name}", ["--tty"] if sys.stdin.isatty() else []
        options = ("--interactive", *terminal, f"launch-{name}-{run['Process']}-{host}")
        words = [Engine(runner).program, "exec", *options, "python3"]
    program = Path(beside.__file__).read_text(encoding="utf-8")  # an image does not have the file
    words += ["-c", program, mark, *(("/bin/sh", "-c", command) if command else BEST_SHELL)]
    with noting_ctrl_c(lambda number: None):
        return shell_code(subprocess.run(words, stdout=sys.stderr if to_stderr else None, check=False).returncode)


def _into_namespaces(mark: bytes) -> list[str]:
    """Return the beginning of a command that runs in the namespaces of the processes with `mark` in their variables, if any."""
    own = os.readlink("/proc/self/ns/pid") if Path("/proc/self").exists() else ""  # noqa: PTH115 - names no file
    for pid in processes():
        with suppress(OSError):  # it has ended, or is another user's
            if mark in Path(f"/proc/{pid}/environ").read_bytes() and os.readlink(f"/proc/{pid}/ns/pid") != own:  # noqa: PTH115
                into = ("--user", "--mount", "--uts", "--pid", "--preserve-credentials")
                ignoring = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
                return [*ignoring, shutil.which("nsenter") or "nsenter", "--target", str(pid), *into]
    return []
