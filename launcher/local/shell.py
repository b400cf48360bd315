"""`launch exec`: a shell in a host of a spec's job, with all that the job finds there; or a program in a host of a local run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.console import print_line
from launcher.errors import RefusedError
from launcher.jobs.lines import check_host
from launcher.jobs.remote import noting_ctrl_c
from launcher.local import beside
from launcher.local.attempts import delivered
from launcher.local.channels.stores import Store
from launcher.local.checkpoints import Checkpoints
from launcher.local.engine import Engine
from launcher.local.fidelity import note_facts
from launcher.local.report import announce
from launcher.local.runs import note_begin
from launcher.local.state import LocalRun
from launcher.local.watch import Stops
from launcher.local.workspace import BEST_SHELL, HostProcess
from sagemaker_channels import contract
from sagemaker_channels.job.process_identity import processes
from sagemaker_channels.start.failure import shell_code


def open_shell(run: LocalRun, store: Store, file_systems: Mapping[str, Path], stops: Stops) -> int:
    """Open the shell on this process's terminal, or let it read commands from standard input; return its exit code.

    Nothing remains of the run. Raises RefusedError if the job cannot run here.
    """
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, run.folder, ignore_errors=True)
        run.stored(run.plan.request["OutputDataConfig"]["S3OutputPath"]).mkdir(parents=True)
        note_begin(run)  # `launch clean` finds it if this process is killed
        announce(run)
        hosts = delivered(
            run, store, file_systems, Checkpoints(run, store), lambda error: run.console.warn(str(error)), stack
        )
        [host] = (each for each in hosts if each.name == run.options.shell)
        note_facts(run, store, host)
        run.transitions.begin("Training")
        code = _shell(run, host)
        stops.held = True
        run.finish()
    if run.options.as_json:
        result = {"TrainingJobName": run.folder.name, "ExitCode": code, "Fidelity": run.facts}
        print_line(json.dumps(result, indent=2))
    return code


def _shell(run: LocalRun, host: HostProcess) -> int:
    typed = run.options.command
    command: tuple[str, ...] = ("/bin/sh", "-c", typed) if typed else BEST_SHELL
    if contract.BOOT_FILE in [Path(word).name for word in host.command[:2]]:
        # It unpacks the code, and sets the variables. What `--command` has reaches to the end.
        command = (*host.command[:2], f"--shell={typed or ''}", *host.command[2:])
    if sys.stdin.isatty() and not typed:
        run.console.say(f"a shell on {host.name}; the job runs: {shlex.join(host.command)}", "cyan")
    # With --json, only the result is printed on stdout.
    process = run.runner.enter(replace(host, command=command), 2 if run.options.as_json else None)
    try:
        return shell_code(process.wait())
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        raise


def execute(run: Mapping[str, Any], host: str, command: str, *, to_stderr: bool = False) -> int:
    """Run a shell command in a host of a described local run, or without one a shell on this terminal; return its exit code.

    Raises RefusedError if the run has ended, or has no such host.
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
