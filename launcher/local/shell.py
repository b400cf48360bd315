"""`launch exec SPEC`: a shell in a host of a job, with everything that the job finds there, in place of the job."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from launcher.console import print_line
from launcher.local.attempts import delivered
from launcher.local.channels.stores import Store
from launcher.local.checkpoints import Checkpoints
from launcher.local.fidelity import as_data, note_facts
from launcher.local.report import announce
from launcher.local.watch import Stops
from launcher.local.workspace import BEST_SHELL, HostProcess, LocalRun
from sagemaker_channels import contract
from sagemaker_channels.start.failure import shell_code


def open_shell(run: LocalRun, store: Store, file_systems: Mapping[str, Path], stops: Stops) -> int:
    """Open the shell on this process's terminal, or let it read commands from standard input; return its exit code.

    Nothing remains of the run.

    Raises:
        RefusedError: The job cannot run here.
    """
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, run.folder, ignore_errors=True)
        run.stored(run.plan.request["OutputDataConfig"]["S3OutputPath"]).mkdir(parents=True)
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
        result = {"TrainingJobName": run.folder.name, "ExitCode": code, "Fidelity": as_data(run.facts)}
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
