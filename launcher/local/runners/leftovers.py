"""Containers, networks and volumes that a run leaves: removed when the launcher ends, however it ends.

They have the label LABEL, whose value names the run. A process that outlives the launcher removes them; what this process could
not remove, because the engine was down, the next run removes.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.console import Console
from launcher.errors import RefusedError
from launcher.local.runners.engine import Engine

LABEL = "sagemaker-launcher.run"
# Waits for the end of its standard input, which the launcher never closes before its own, and removes what has the label.
_REMOVE = """
read -r _
for pause in 0 1 3; do  # another program may be removing them
    sleep $pause
    "$1" ps -aq --filter "label=$2" | xargs -r "$1" rm -fv && break
done
"$1" volume ls -q --filter "label=$2" | xargs -r "$1" volume rm
"$1" network ls -q --filter "label=$2" | xargs -r "$1" network rm
"""


def name_of_run(job: str) -> str:
    """Return a name for what a job's run makes, which no other run has."""
    return f"launch-{job}-{_owner(os.getpid())}"


@contextmanager
def removed_at_the_end(engine: Engine, label: str, console: Console) -> Iterator[None]:
    """On leaving, or when this process is killed, remove what has the label; first, what is left of earlier runs."""
    _remove_abandoned(engine)
    command = ["sh", "-c", _REMOVE, "sh", engine.program, label]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must not end it
    ) as remover:
        try:
            yield
        finally:
            remover.communicate()
            _warn_of_leftovers(engine, label, console)


def _warn_of_leftovers(engine: Engine, label: str, console: Console) -> None:
    try:
        left = "containers " + ", ".join(engine.ask("ps", "-aq", "--filter", f"label={label}").split())
    except RefusedError as error:
        left = f"containers ({error})"
    if left != "containers ":
        console.warn(f"{left} could not be removed; the next --local {engine.name} tries again")


def _owner(process: int | str) -> str | None:
    """Return a name of a process that no later process gets, of letters that can be in a container's name."""
    try:
        # The 22nd field, the start; the 2nd, in parentheses, can contain blanks.
        start = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
        return f"{_scope()}.{process}.{start}"
    except FileNotFoundError:
        return None


def _scope() -> str:
    """Return a name of the processes that this one can surely find: in its namespace, and of its user (`hidepid` of /proc)."""
    return f"{Path('/proc/self/ns/pid').stat().st_ino}.{os.geteuid()}"


def _remove_abandoned(engine: Engine) -> None:
    """Remove what is left of runs whose launcher was killed while the engine was down."""
    shown = ("--filter", f"label={LABEL}", "--format", "{{.Labels}}")  # all labels: a=b,c=d or map[a:b c:d]
    labels = engine.ask("network", "ls", *shown) + engine.ask("ps", "-a", *shown)
    for run in set(re.findall(rf"\b{re.escape(LABEL)}[=:]([\w.-]+)", labels)):
        owner = run.rpartition("-")[2]
        scope, *rest = owner.rsplit(".", 2)
        if scope == _scope() and _owner(rest[0]) != owner:
            command = ["sh", "-c", _REMOVE, "sh", engine.program, f"{LABEL}={run}"]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
